// For the tests of virtual time: a cluster of pairs, with round figures.
#ifndef SIM_TEST_CLUSTER_H
#define SIM_TEST_CLUSTER_H

#include "plan/cluster.h"

static inline cluster small_cluster(void)
{
    cluster c = {
        .devices = 64,
        .device = {.maker = "sample", .memory_bytes_s = 1e12, .launch_s = 2e-6, .units = 1},
        .node = {.devices = 2, .host_bytes_s = 1e10},
        .levels = {{.devices = 2, .bytes_s = 1e11, .latency_s = 1e-6, .taper = 1},
                   {.devices = 64, .bytes_s = 1e10, .latency_s = 5e-6, .taper = 1}},
        .level_count = 2};
    c.device.peak_flops[MATH_FP32] = 1e13;
    return c;
}

#endif
