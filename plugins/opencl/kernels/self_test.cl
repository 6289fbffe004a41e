/* self_test.cl -- x = x x + x: what the probing process runs before the device is believed. */
kernel void self_test(global float *x) {
    const int i = get_global_id(0);
    const float v = x[i];
    x[i] = v * v + v;
}
