// A cluster as plain data: the speed of devices, the links between them, their cost and their
// failure rates. cost, the search and the simulator read it; `catalog` fills it from YAML
// (catalog/catalog.h), tests fill it by hand. Pure: no I/O, no functions that can fail.
//
// Conventions that hold for every field, because most wrong figures come from mixing them up:
//   - SI units, in the name: bytes (not bits), seconds, watts, hours where _h, US dollars where
//     _usd;
//     1 GB/s is 1e9 bytes/s. An "80 GB" device has 80e9 here; its chips have 80 GiB, of
//     which programs get usable_bytes (79.1 GiB = 84.9e9). Checks of what fits use usable_bytes;
//   - peaks are dense (no structured sparsity), at the boost clock of the data sheet;
//   - a device is what one rank runs on: a GPU package (B200: both dies), one GCD of an MI250X, a
//     TPU chip (both cores), a Trainium chip (all of its cores);
//   - bandwidths of links are per device and per direction;
//   - 0 means "not known" in fields whose comments say so.
#ifndef PLAN_CLUSTER_H
#define PLAN_CLUSTER_H

#include "base/types.h"

#ifdef __cplusplus
extern "C" {
#endif

// Types in which matrix units multiply. (A dtype is the storage format; fp32 weights may be
// multiplied as tf32.)
typedef enum cluster_math {
    MATH_FP64,
    MATH_FP32,
    MATH_TF32,
    MATH_BF16,
    MATH_FP16,
    MATH_FP8,
    MATH_INT8,
    MATH_FP4,
    MATH_COUNT
} cluster_math;

typedef struct cluster_device {
    const char *name, *about; // "h100"; one line for people
    const char *entry;        // catalogue entry on which the file `name` is based; NULL: none
    const char *maker;        // "nvidia", "amd", "google", "aws", "cpu"
    // Profiles of the two softwares that were measured on it, or on the device nearest to it.
    const char *software[2];
    // Dense GEMMs, FLOP/s (int8: operations/s). 0: it has no unit for the type.
    double peak_flops[MATH_COUNT];
    // The vendor's figure with 2:4 structured sparsity. Never used as a peak. 0: none.
    double sparse_flops[MATH_COUNT];
    double vector_flops;   // fp32 outside the matrix units
    double memory_bytes;   // installed, as sold, in 1e9
    double usable_bytes;   // available to a process, without driver, ECC and context
    double memory_bytes_s; // peak of the device's own memory, reads and writes together
    double context_bytes;  // of it, for the driver's context, code and libraries; 0: not known
    double l2_bytes;       // last cache before memory; 0: not known
    double clock_hz;       // boost; 0: not known
    // For tiles and waves: units that each work on one tile of a product at a time (SMs, CUs,
    // cores), the vector lanes ("CUDA cores", "stream processors") and matrix units in each of
    // them.
    int32_t units, lanes_per_unit, matrix_units_per_unit;
    int32_t dies;                   // pieces of silicon in one device
    int32_t tile_m, tile_n, tile_k; // a GEMM's usual tile; 0: no such quantisation
    double launch_s; // from one kernel's end to the next one's start with a full queue
    // Share of peak_flops by type that good kernels reach on large shapes, with any software (a
    // profile multiplies it); 0: as for bf16.
    double gemm_share[MATH_COUNT];
    // share(m, n, k) = gemm_share x m/(m + half_m) x n/(n + half_n) x k/(k + half_k). A tile begins
    // and ends in the same time whatever its type: faster types need a longer k (half_k_fp8; 0: as
    // the others).
    double gemm_half_m, gemm_half_n, gemm_half_k, gemm_half_k_fp8;
    double memory_share;      // share of memory_bytes_s that streaming kernels reach
    double memory_half_bytes; // an operation of this size reaches half of that
    double attention_forward_share,
        attention_backward_share; // of the bf16 peak, causal half counted
    // Share of attention's time with heads of 128 that depends on scores (exponentials), not on the
    // size of heads.
    double attention_forward_scores, attention_backward_scores;
    double attention_half; // tokens of a sequence with half of that share; 0: no dependence
    double
        team; // share of the units' separate speed that they reach on one operation (cores; 0: all)
    // Operands per second of elementwise arithmetic (norms, activations), fp32 and 16 bits: its
    // bound where memory is not; 0: memory is always the bound.
    double pointwise_fp32_s, pointwise_16_s;
    double pointwise_half; // columns of a row at which half of it is reached; 0: at any width
    double watts,
        idle_watts;     // TDP of the device, or its limit; and when nothing runs (0: not known)
    double limit_watts; // power limit below its TDP; 0: none
    double sold_watts;  // TDP, where cost_limit_power() has put the limit in its place; 0: watts
} cluster_device;

// The topology that connects the devices, or the groups of the level below.
typedef enum cluster_shape {
    SHAPE_SWITCH,    // any to any at full bandwidth (NVSwitch, one leaf)
    SHAPE_RING,      // each to two neighbours
    SHAPE_TORUS,     // dims[] long; bandwidth is over all of a device's links together
    SHAPE_MESH,      // every pair has links of its own (4 A100, MI300X); bandwidth over all links
    SHAPE_CUBE,      // eight, of which each has 4 of 6 links to three and 2 to a fourth (DGX-1)
    SHAPE_HOST,      // through PCIe and the host's memory
    SHAPE_RAILS,     // devices with the same index in their nodes have a network of their own
    SHAPE_FAT_TREE,  // tiers of switches; taper is the oversubscription at the top
    SHAPE_DRAGONFLY, // groups, all to all between them
    SHAPE_WIDE,      // between halls or sites, over long fibres
    SHAPE_COUNT
} cluster_shape;

enum { CLUSTER_LEVELS = 8, CLUSTER_DIMS = 3 };

// One level of the hierarchy. Two devices communicate over the innermost level whose group has
// both.
typedef struct cluster_level {
    const char *name; // "nvlink", "host", "rail", "leaf", "pod", "site"
    const char *link; // its row of catalog/links: "nvlink4", "ndr"; "" if none
    cluster_shape shape;
    int64_t devices; // in one group of this level; ascending, a multiple of the level below. The
                     // outermost level's group always holds the whole cluster
    double bytes_s;  // wire speed per device and direction, all of its ports at this level
    double latency_s;
    double efficiency; // share of bytes_s that the payload of large collectives reaches
    double taper; // oversubscription: if all devices send at once, each gets bytes_s / taper; >= 1
    int32_t dims[CLUSTER_DIMS]; // dims of SHAPE_TORUS; 0: no more
    bool reduces;               // switches add on the way (SHARP, NVLS): all_reduce sends data once
    double joules_per_bit;      // per bit sent, both ends; 0: not known
} cluster_level;

typedef struct cluster_node {
    int32_t devices;
    double host_memory_bytes;
    int32_t cpu_cores, other_threads; // threads of other programs that always want to run
    double host_bytes_s; // between a device and the host's memory, per device, per direction
    double watts;        // a busy node without its devices: CPUs, memory, fans, NICs
    // To and from the file system, per node.
    double storage_write_bytes_s, storage_read_bytes_s;
} cluster_node;

// US dollars for one device and hour; 0: no price known.
typedef struct cluster_prices {
    double on_demand_usd_h, reserved_usd_h, spot_usd_h;
    double reserved_1y_usd_h, reserved_3y_usd_h; // with a commitment of one year, of three
    double owned_usd_h;                          // depreciation and hall, without energy
    double spot_interruptions_h;                 // of one node, per hour
    double device_usd;                           // price with its share of the node and network
    double kwh_usd;
    double network_usd_h;        // of a device, where its own price leaves the network out
    double storage_usd_gb_month; // of 1e9 bytes that checkpoints keep
    double egress_usd_gb;        // of 1e9 bytes that leave the provider's region
    // The list of catalog/prices that rented devices' prices are from, and the day on which it was
    // read; "" or NULL: the cluster's own entry.
    const char *list, *date;
} cluster_prices;

// Causes of interruptions.
typedef enum cluster_cause {
    CAUSE_DEVICE,        // GPU, and causes that cannot be distinguished from it
    CAUSE_DEVICE_MEMORY, // HBM, SRAM
    CAUSE_HOST,          // CPU, memory, mainboard, unattended reboot
    CAUSE_NETWORK,       // NICs, cables, switches
    CAUSE_STORAGE,
    CAUSE_SOFTWARE,
    CAUSE_FACILITY, // power, cooling
    CAUSE_OTHER,
    CAUSE_COUNT
} cluster_cause;

typedef struct cluster_failures {
    double mtbf_device_h;      // device-hours between interruptions of a job, all causes together
    double share[CAUSE_COUNT]; // adds up to 1
    // Correlated failures, in addition: each takes down a whole group of devices. 0: not counted.
    double mtbf_node_h;   // hours between failures of one node
    double mtbf_switch_h; // hours between failures of one leaf switch or rack
    int32_t switch_devices;
    double repair_h;  // until a replaced node is back
    double detect_s;  // until the job detects it
    double restart_s; // from then to the first new step, without the read of the checkpoint
    // Slow but working devices: share of nodes at a time, and their speed.
    double slow_share, slow_speed;
    double jitter; // standard deviation over mean of a step's time on one device
} cluster_failures;

typedef struct cluster {
    const char *name, *about;
    int64_t devices; // in the whole cluster
    cluster_device device;
    cluster_node node;
    cluster_level levels[CLUSTER_LEVELS]; // innermost first
    int32_t level_count;                  // at least 1
    cluster_prices prices;
    cluster_failures failures;
    double storage_write_bytes_s,
        storage_read_bytes_s; // of the whole file system; 0: no limit known
    double pue;               // energy of the hall over that of the machines in it, >= 1
} cluster;

#ifdef __cplusplus
}
#endif
#endif
