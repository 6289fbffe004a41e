/* self_test.cl -- what the probing process runs before the device is believed: x = x x + x, and
 * whether items of sub-groups exchange what they should. */
kernel void self_test(global float *x) {
    const int i = get_global_id(0);
    const float v = x[i];
    x[i] = v * v + v;
}

#ifdef SUB_GROUPS
/* One group of [2, 32] items: how many exchanges give an item what another one's number is not. */
kernel void self_test_sub_groups(global float *x) {
    local uint red[64];
    const int item = get_local_id(0) + 32 * get_local_id(1);
    int wrong = 0;
    for (int n = min(sub_size(), 32) / 2; n; n /= 2)
        wrong += other_uint(item, n, red) != (uint)(item ^ n);
    x[item] = wrong;
}
#endif
