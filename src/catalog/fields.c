// The keys of devices, links, levels and clusters. To add one: a field in plan/cluster.h and a row
// here.
#include "catalog/fields.h"

#define GIGA 1e9
#define TERA 1e12
#define GIBI 1073741824.0
#define GBIT (1e9 / 8)

#define FIELD(type, k, what, field, ...)                                             \
    {                                                                                \
        .key = (k), .kind = OPTION_##what, .offset = (int64_t)offsetof(type, field), \
        .bytes = (int32_t)sizeof(((type *)0)->field), __VA_ARGS__                    \
    }

// ---- devices ------------------------------------------------------------------------------------

#define DEVICE(k, what, field, ...) FIELD(cluster_device, k, what, field, __VA_ARGS__)
#define TFLOPS(k, field)                                             \
    DEVICE("peak_tflops." k, REAL, peak_flops[field], .scale = TERA, \
           .help = "dense products at the boost clock, TFLOP/s; 0: no such unit")
#define SPARSE(k, field)                                                 \
    DEVICE("sparse_tflops." k, REAL, sparse_flops[field], .scale = TERA, \
           .help = "as printed with 2:4 sparsity; shown, never used")
#define SHARE(k, field)                                             \
    DEVICE("product_share." k, REAL, gemm_share[field], .max = 1.0, \
           .help = "of the peak, that the best kernels reach on large products")

static const catalog_field device_rows[] = {
    DEVICE("maker", TEXT, maker, .help = "nvidia, amd, google, aws, intel, cpu"),
    TFLOPS("fp64", MATH_FP64),
    TFLOPS("fp32", MATH_FP32),
    TFLOPS("tf32", MATH_TF32),
    DEVICE("peak_tflops.bf16", REAL, peak_flops[MATH_BF16], .scale = TERA,
           .help = "dense products at the boost clock, TFLOP/s; 0: no such unit"),
    TFLOPS("fp16", MATH_FP16),
    TFLOPS("fp8", MATH_FP8),
    TFLOPS("int8", MATH_INT8),
    TFLOPS("fp4", MATH_FP4),
    SPARSE("tf32", MATH_TF32),
    SPARSE("bf16", MATH_BF16),
    SPARSE("fp16", MATH_FP16),
    SPARSE("fp8", MATH_FP8),
    SPARSE("int8", MATH_INT8),
    SPARSE("fp4", MATH_FP4),
    DEVICE("vector_tflops", REAL, vector_flops, .scale = TERA, .is_wanted = true,
           .help = "fp32 outside the matrix units, TFLOP/s"),
    DEVICE("memory_gb", REAL, memory_bytes, .scale = GIGA, .is_wanted = true,
           .help = "installed, as sold: 80 of an 80 GB card"),
    DEVICE("usable_gib", REAL, usable_bytes, .scale = GIBI, .is_wanted = true,
           .help = "what the driver gives to programs, in GiB (2^30)"),
    DEVICE("memory_gb_s", REAL, memory_bytes_s, .scale = GIGA, .is_wanted = true,
           .help = "peak of the device's own memory, GB/s"),
    DEVICE("l2_mb", REAL, l2_bytes, .scale = 1e6, .help = "last cache before memory, MB"),
    DEVICE("clock_mhz", REAL, clock_hz, .scale = 1e6, .help = "boost clock of the peaks"),
    DEVICE("units", INT, units, .max = 1e6, .help = "SMs, compute units, cores"),
    DEVICE("lanes_per_unit", INT, lanes_per_unit, .max = 1e6,
           .help = "fp32 lanes in each: CUDA cores, stream processors"),
    DEVICE("matrix_units_per_unit", INT, matrix_units_per_unit, .max = 1e6,
           .help = "tensor cores, matrix cores in each"),
    DEVICE("dies", INT, dies, .value = "1", .min = 1, .max = 64, .help = "pieces of silicon"),
    DEVICE("tile.m", INT, tile_m, .max = 65536, .help = "rows of a product's usual tile"),
    DEVICE("tile.n", INT, tile_n, .max = 65536, .help = "its columns"),
    DEVICE("tile.k", INT, tile_k, .max = 65536, .help = "its steps along k"),
    DEVICE("launch_us", REAL, launch_s, .scale = 1e-6,
           .help = "from a kernel's end to the next one's begin, queue full"),
    SHARE("fp64", MATH_FP64),
    SHARE("fp32", MATH_FP32),
    SHARE("tf32", MATH_TF32),
    DEVICE("product_share.bf16", REAL, gemm_share[MATH_BF16], .value = "0.75", .max = 1.0,
           .help = "of the peak, that the best kernels reach on large products"),
    SHARE("fp16", MATH_FP16),
    SHARE("fp8", MATH_FP8),
    SHARE("int8", MATH_INT8),
    SHARE("fp4", MATH_FP4),
    DEVICE("product_half.m", REAL, gemm_half_m, .max = 1e6,
           .help = "rows at which half of that is reached"),
    DEVICE("product_half.n", REAL, gemm_half_n, .max = 1e6, .help = "columns, likewise"),
    DEVICE("product_half.k", REAL, gemm_half_k, .max = 1e6, .help = "inner size, likewise"),
    DEVICE("product_half.k_fp8", REAL, gemm_half_k_fp8, .max = 1e6,
           .help = "the same of fp8; 0: as of other types"),
    DEVICE("memory_share", REAL, memory_share, .value = "0.85", .max = 1.0,
           .help = "of the bandwidth, that streaming kernels reach"),
    DEVICE("memory_half_mb", REAL, memory_half_bytes, .scale = 1e6,
           .help = "an operation of so many MB reaches half of that"),
    DEVICE("attention_share.forward", REAL, attention_forward_share, .value = "0.5", .max = 1.0,
           .help = "of the bf16 peak (of a processor's fp32 peak), causal half counted"),
    DEVICE("attention_share.backward", REAL, attention_backward_share, .value = "0.4", .max = 1.0,
           .help = "of the bf16 peak (of a processor's fp32 peak), causal half counted"),
    DEVICE("attention_scores.forward", REAL, attention_forward_scores, .max = 1.0,
           .help = "of its time with heads of 128: what each score takes whatever the heads' size"),
    DEVICE("attention_scores.backward", REAL, attention_backward_scores, .max = 1.0,
           .help = "likewise"),
    DEVICE("attention_half", REAL, attention_half, .max = 1e6,
           .help = "tokens of a sequence at which attention reaches half of that"),
    DEVICE("team", REAL, team, .value = "1", .max = 1.0,
           .help = "speed of all units on one operation over that of each on its own"),
    DEVICE("pointwise_half", REAL, pointwise_half, .max = 1e6,
           .help = "columns of a row at which half of that is reached"),
    DEVICE("pointwise_gops.fp32", REAL, pointwise_fp32_s, .scale = GIGA,
           .help = "1e9 operands a second of norms and activations; 0: memory is the limit"),
    DEVICE("pointwise_gops.bf16", REAL, pointwise_16_s, .scale = GIGA,
           .help = "likewise, of 16 bits"),
    DEVICE("watts", REAL, watts, .is_wanted = true, .help = "thermal design power, as sold"),
    DEVICE("idle_watts", REAL, idle_watts, .help = "0: not known"),
    DEVICE("limit_watts", REAL, limit_watts,
           .help = "that it is held to, which lowers its clock: products and attention go by the "
                   "square root of what is left beside idle_watts; 0: watts"),
};
const catalog_fields catalog_device_fields = {device_rows, COUNT_OF(device_rows), "device"};

// ---- links --------------------------------------------------------------------------------------

#define SHAPES "switch, ring, torus, mesh, cube, host, rails, fat-tree, dragonfly, wide"
_Static_assert(SHAPE_COUNT == 10, "a word for each shape");
#define LINK(k, what, field, ...) FIELD(catalog_link, k, what, field, __VA_ARGS__)

static const catalog_field link_rows[] = {
    LINK("gbit_s", REAL, bytes_s, .scale = GBIT, .is_wanted = true,
         .help = "of one port, one direction, Gbit/s of payload-bearing signal"),
    LINK("latency_us", REAL, latency_s, .scale = 1e-6, .is_wanted = true,
         .help = "of a small message, device to device"),
    LINK("efficiency", REAL, efficiency, .value = "0.8", .max = 1.0,
         .help = "share that the payload of large collectives reaches"),
    LINK("pj_per_bit", REAL, joules_per_bit, .scale = 1e-12, .help = "both ends; 0: not known"),
    LINK("shape", CHOICE, shape, .value = "switch", .choices = SHAPES,
         .help = "how it joins; in a mesh, and in a cube of eight (DGX-1), a group has those of a "
                 "device's links that lead to its own members"),
    LINK("reduces", BOOL, reduces, .help = "switches add on the way (SHARP, NVLS)"),
};
const catalog_fields catalog_link_fields = {link_rows, COUNT_OF(link_rows), "link"};

// ---- levels of a cluster ------------------------------------------------------------------------

#define LEVEL(k, what, field, ...) FIELD(cluster_level, k, what, field, __VA_ARGS__)

static const catalog_field level_rows[] = {
    LEVEL("name", TEXT, name, .help = "nvlink, node, rail, pod, site"),
    LEVEL("link", TEXT, link, .help = "an entry of catalog/links"),
    LEVEL("devices", INT, devices, .max = 1e9, .help = "in one group of this level"),
    LEVEL("gbit_s", REAL, bytes_s, .scale = GBIT,
          .help = "of one device, one direction, instead of ports x the link's"),
    LEVEL("latency_us", REAL, latency_s, .scale = 1e-6, .help = "instead of the link's"),
    LEVEL("efficiency", REAL, efficiency, .max = 1.0, .help = "instead of the link's"),
    LEVEL("taper", REAL, taper, .value = "1", .min = 1, .max = 1e4,
          .help = "oversubscription: 1 is none, 7 is 1:7"),
    LEVEL("shape", CHOICE, shape, .choices = SHAPES, .value = "switch",
          .help = "instead of the link's"),
    LEVEL("reduces", BOOL, reduces, .help = "instead of the link's"),
    LEVEL("dims.x", INT, dims[0], .max = 1e6, .help = "of a torus"),
    LEVEL("dims.y", INT, dims[1], .max = 1e6, .help = "of a torus"),
    LEVEL("dims.z", INT, dims[2], .max = 1e6, .help = "of a torus"),
};
const catalog_fields catalog_level_fields = {level_rows, COUNT_OF(level_rows), "level"};

// ---- clusters -----------------------------------------------------------------------------------

#define CLUSTER(k, what, field, ...) FIELD(cluster, k, what, field, __VA_ARGS__)
#define USD(k, field, text)          CLUSTER("prices." k, REAL, prices.field, .help = (text))
#define CAUSE(k, cause) \
    CLUSTER("failures.share." k, REAL, failures.share[cause], .help = "part of all failures")

static const catalog_field cluster_rows[] = {
    CLUSTER("devices", INT, devices, .is_wanted = true, .max = 1e8, .help = "in all"),
    CLUSTER("node.devices", INT, node.devices, .is_wanted = true, .max = 1e6, .help = "in a node"),
    CLUSTER("node.host_memory_gb", REAL, node.host_memory_bytes, .scale = GIGA,
            .help = "of a node"),
    CLUSTER("node.cpu_cores", INT, node.cpu_cores, .max = 1e6, .help = "of a node"),
    CLUSTER("node.host_gb_s", REAL, node.host_bytes_s, .scale = GIGA, .value = "25",
            .help = "between a device and the host's memory, one direction, GB/s"),
    CLUSTER("node.watts", REAL, node.watts, .help = "of a busy node without its devices"),
    CLUSTER("node.storage_write_gb_s", REAL, node.storage_write_bytes_s, .scale = GIGA,
            .value = "2", .help = "of a node to the file system, GB/s"),
    CLUSTER("node.storage_read_gb_s", REAL, node.storage_read_bytes_s, .scale = GIGA, .value = "4",
            .help = "of a node from it, GB/s"),
    USD("on_demand_usd_h", on_demand_usd_h, "a device, an hour"),
    USD("reserved_usd_h", reserved_usd_h, "a device, an hour, for a year or so"),
    USD("spot_usd_h", spot_usd_h, "a device, an hour, that may be taken back"),
    USD("owned_usd_h", owned_usd_h, "a device, an hour, without energy"),
    USD("spot_interruptions_h", spot_interruptions_h, "of one node, an hour"),
    USD("device_usd", device_usd, "to buy, its share of node and network included"),
    CLUSTER("prices.kwh_usd", REAL, prices.kwh_usd, .value = "0.07", .help = "energy"),
    CLUSTER("failures.mtbf_device_h", REAL, failures.mtbf_device_h, .value = "50677",
            .help = "device-hours between interruptions, all causes"),
    CAUSE("device", CAUSE_DEVICE),
    CAUSE("device_memory", CAUSE_DEVICE_MEMORY),
    CAUSE("host", CAUSE_HOST),
    CAUSE("network", CAUSE_NETWORK),
    CAUSE("storage", CAUSE_STORAGE),
    CAUSE("software", CAUSE_SOFTWARE),
    CAUSE("facility", CAUSE_FACILITY),
    CAUSE("other", CAUSE_OTHER),
    CLUSTER("failures.mtbf_node_h", REAL, failures.mtbf_node_h, .help = "hours; 0: none counted"),
    CLUSTER("failures.mtbf_switch_h", REAL, failures.mtbf_switch_h,
            .help = "hours; 0: none counted"),
    CLUSTER("failures.switch_devices", INT, failures.switch_devices, .max = 1e8,
            .help = "devices that one switch's failure takes"),
    CLUSTER("failures.repair_h", REAL, failures.repair_h, .value = "24",
            .help = "until a replaced node is back"),
    CLUSTER("failures.detect_s", REAL, failures.detect_s, .value = "60",
            .help = "until the job knows"),
    CLUSTER("failures.restart_s", REAL, failures.restart_s, .value = "300",
            .help = "from then to the first new step, without reading the checkpoint"),
    CLUSTER("failures.slow_share", REAL, failures.slow_share, .max = 1.0,
            .help = "of nodes, that are slow at a time"),
    CLUSTER("failures.slow_speed", REAL, failures.slow_speed, .value = "1", .max = 1.0,
            .help = "theirs, over the others'"),
    CLUSTER("failures.jitter", REAL, failures.jitter, .max = 1.0,
            .help = "of a step on one device, standard deviation over mean"),
    CLUSTER("storage.write_gb_s", REAL, storage_write_bytes_s, .scale = GIGA,
            .help = "of the file system in all, GB/s; 0: no limit known"),
    CLUSTER("storage.read_gb_s", REAL, storage_read_bytes_s, .scale = GIGA, .help = "likewise"),
    CLUSTER("pue", REAL, pue, .value = "1.2", .min = 1, .max = 10,
            .help = "energy of the hall over that of the machines"),
};
const catalog_fields catalog_cluster_fields = {cluster_rows, COUNT_OF(cluster_rows), "cluster"};
