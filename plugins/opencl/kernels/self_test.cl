/* self_test.cl -- what the probing process runs before the device is believed: x = x x + x, and
 * whether items of sub-groups exchange what they should and multiply matrices as they should. */
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

#ifdef MAD
/* One group of [MAD, 64 / MAD] items: by how much the products of an item's output are wrong. Row m
 * has the elements m + k - 3, output n the weights n - k, as halves. */
kernel MAD_ATTRIBUTES(64 / MAD) void self_test_mad(global float *x) {
    local uint8 room[64];
    const int n = get_local_id(0);
    float weights[16];
    float rows[16];
    mad_rows a;
    int8 b;
    float got[8];
    float error = 0;
    for (int k = 0; k < 16; k++)
        weights[k] = (float)(n - k);
    vstore_half16(vload16(0, weights), 0, (private half *)&b);
    for (int i = 0; i < 128 / MAD; i++) {
        const int k = 16 / MAD * n + i % (16 / MAD);
        rows[i] = (float)(i / (16 / MAD) + k - 3);
    }
#if MAD == 8
    vstore_half16(vload16(0, rows), 0, (private half *)&a);
#else
    vstore_half8(vload8(0, rows), 0, (private half *)&a);
#endif
    vstore8(mad8(a, b, (float8)(0.5f), room), 0, got);
    for (int m = 0; m < 8; m++) {
        float sum = 0.5f;
        for (int k = 0; k < 16; k++)
            sum += (float)((m + k - 3) * (n - k));
        error += fabs(got[m] - sum);
    }
    x[n + MAD * get_local_id(1)] = error;
}
#endif
