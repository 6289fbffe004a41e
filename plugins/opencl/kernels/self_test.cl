/* self_test.cl -- what the probing process runs before the device is believed: x = x x + x, and
 * whether items of sub-groups exchange what they should. */
kernel void self_test(global float *x) {
    const int i = get_global_id(0);
    const float v = x[i];
    x[i] = v * v + v;
}

#ifdef SUB_GROUPS
/* One group of [2, 32] items: by how much the sum of the numbers of a sub-group is wrong. */
kernel void self_test_sub_groups(global float *x) {
    local float red[64];
    const int item = get_local_id(0) + 32 * get_local_id(1);
    const int size = min(sub_size(), 32);
    const int first = item & ~(size - 1);
    const float sum = sub_sum((float)item, size, red);
    x[item] = sum - (float)(size * first + size * (size - 1) / 2);
}
#endif
