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
           .help = "peak of dense GEMMs at the boost clock, TFLOP/s; 0: no such unit")
#define SPARSE(k, field)                                                 \
    DEVICE("sparse_tflops." k, REAL, sparse_flops[field], .scale = TERA, \
           .help = "peak with 2:4 sparsity, TFLOP/s, as published; shown only")
#define SHARE(k, field)                                             \
    DEVICE("product_share." k, REAL, gemm_share[field], .max = 1.0, \
           .help = "share of the peak that the best kernels reach on large GEMMs")

static const catalog_field device_rows[] = {
    DEVICE("maker", TEXT, maker, .help = "manufacturer: nvidia, amd, google, aws, intel, cpu"),
    DEVICE("software.1", TEXT, software[0], .help = "profile of software that was measured on it"),
    DEVICE("software.2", TEXT, software[1], .help = "profile of another one"),
    TFLOPS("fp64", MATH_FP64),
    TFLOPS("fp32", MATH_FP32),
    TFLOPS("tf32", MATH_TF32),
    DEVICE("peak_tflops.bf16", REAL, peak_flops[MATH_BF16], .scale = TERA,
           .help = "peak of dense GEMMs at the boost clock, TFLOP/s; 0: no such unit"),
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
           .help = "peak of fp32 outside the matrix units, TFLOP/s"),
    DEVICE("memory_gb", REAL, memory_bytes, .scale = GIGA, .is_wanted = true,
           .help = "installed memory, GB, as sold: 80 for an 80 GB device"),
    DEVICE("usable_gib", REAL, usable_bytes, .scale = GIBI, .is_wanted = true,
           .help = "memory that the driver gives to programs, GiB (2^30 bytes)"),
    DEVICE("context_gib", REAL, context_bytes, .scale = GIBI,
           .help = "of it, what the driver's context, the code of kernels and libraries take for a "
                   "process that trains, GiB"),
    DEVICE("memory_gb_s", REAL, memory_bytes_s, .scale = GIGA, .is_wanted = true,
           .help = "peak bandwidth of the device's own memory, GB/s"),
    DEVICE("l2_mb", REAL, l2_bytes, .scale = 1e6,
           .help = "size of the last cache before memory, MB"),
    DEVICE("clock_mhz", REAL, clock_hz, .scale = 1e6,
           .help = "boost clock at which the peaks hold, MHz"),
    DEVICE("units", INT, units, .max = 1e6, .help = "number of SMs, compute units or cores"),
    DEVICE("lanes_per_unit", INT, lanes_per_unit, .max = 1e6,
           .help = "fp32 lanes of a unit: CUDA cores, stream processors"),
    DEVICE("matrix_units_per_unit", INT, matrix_units_per_unit, .max = 1e6,
           .help = "tensor cores or matrix cores of a unit"),
    DEVICE("dies", INT, dies, .value = "1", .min = 1, .max = 64, .help = "number of dies"),
    DEVICE("tile.m", INT, tile_m, .max = 65536, .help = "rows of the usual tile of a GEMM"),
    DEVICE("tile.n", INT, tile_n, .max = 65536, .help = "columns of the usual tile of a GEMM"),
    DEVICE("tile.k", INT, tile_k, .max = 65536,
           .help = "steps along k of the usual tile of a GEMM"),
    DEVICE("launch_us", REAL, launch_s, .scale = 1e-6,
           .help =
               "microseconds from the end of a kernel to the start of the next, with a full queue"),
    SHARE("fp64", MATH_FP64),
    SHARE("fp32", MATH_FP32),
    SHARE("tf32", MATH_TF32),
    DEVICE("product_share.bf16", REAL, gemm_share[MATH_BF16], .value = "0.75", .max = 1.0,
           .help = "share of the peak that the best kernels reach on large GEMMs"),
    SHARE("fp16", MATH_FP16),
    SHARE("fp8", MATH_FP8),
    SHARE("int8", MATH_INT8),
    SHARE("fp4", MATH_FP4),
    DEVICE("product_half.m", REAL, gemm_half_m, .max = 1e6,
           .help = "rows at which a GEMM reaches half of product_share"),
    DEVICE("product_half.n", REAL, gemm_half_n, .max = 1e6,
           .help = "columns at which a GEMM reaches half of product_share"),
    DEVICE("product_half.k", REAL, gemm_half_k, .max = 1e6,
           .help = "inner size at which a GEMM reaches half of product_share"),
    DEVICE("product_half.k_fp8", REAL, gemm_half_k_fp8, .max = 1e6,
           .help = "the inner size for fp8; 0: as for other types"),
    DEVICE("memory_share", REAL, memory_share, .value = "0.85", .max = 1.0,
           .help = "share of the bandwidth that streaming kernels reach"),
    DEVICE("memory_half_mb", REAL, memory_half_bytes, .scale = 1e6,
           .help = "size of an operation, MB, at which it reaches half of memory_share"),
    DEVICE("attention_share.forward", REAL, attention_forward_share, .value = "0.5", .max = 1.0,
           .help =
               "share of the bf16 peak (fp32 for a processor) that a forward attention reaches, "
               "counting the causal half"),
    DEVICE("attention_share.backward", REAL, attention_backward_share, .value = "0.4", .max = 1.0,
           .help =
               "share of the bf16 peak (fp32 for a processor) that a backward attention reaches, "
               "counting the causal half"),
    DEVICE("attention_scores.forward", REAL, attention_forward_scores, .max = 1.0,
           .help =
               "share of the time of a forward attention with heads of 128 that does not depend on "
               "the size of heads"),
    DEVICE(
        "attention_scores.backward", REAL, attention_backward_scores, .max = 1.0,
        .help =
            "share of the time of a backward attention with heads of 128 that does not depend on "
            "the size of heads"),
    DEVICE("attention_half", REAL, attention_half, .max = 1e6,
           .help = "tokens of a sequence at which attention reaches half of attention_share"),
    DEVICE("team", REAL, team, .value = "1", .max = 1.0,
           .help =
               "speed of all units on one operation, relative to separate operations on each unit"),
    DEVICE("pointwise_half", REAL, pointwise_half, .max = 1e6,
           .help = "columns of a row at which an element-wise operation reaches half of its speed"),
    DEVICE("pointwise_gops.fp32", REAL, pointwise_fp32_s, .scale = GIGA,
           .help =
               "1e9 operands per second of norms and activations in fp32; 0: memory is the limit"),
    DEVICE("pointwise_gops.bf16", REAL, pointwise_16_s, .scale = GIGA,
           .help = "1e9 operands per second in 16 bits; 0: memory is the limit"),
    DEVICE("watts", REAL, watts, .is_wanted = true,
           .help = "thermal design power, W, as published"),
    DEVICE("idle_watts", REAL, idle_watts, .help = "power of an idle device, W; 0: not known"),
    DEVICE("limit_watts", REAL, limit_watts,
           .help = "power limit, W, which lowers the clock: GEMMs and attention slow down by the "
                   "square root of the share of power left above idle_watts; 0: watts"),
};
const catalog_fields catalog_device_fields = {device_rows, COUNT_OF(device_rows), "device"};

// ---- links --------------------------------------------------------------------------------------

#define SHAPES "switch, ring, torus, mesh, cube, host, rails, fat-tree, dragonfly, wide"
_Static_assert(SHAPE_COUNT == 10, "a word for each shape");
#define LINK(k, what, field, ...) FIELD(catalog_link, k, what, field, __VA_ARGS__)

static const catalog_field link_rows[] = {
    LINK("gbit_s", REAL, bytes_s, .scale = GBIT, .is_wanted = true,
         .help = "bandwidth of one port in one direction, Gbit/s of signal that carries payload"),
    LINK("latency_us", REAL, latency_s, .scale = 1e-6, .is_wanted = true,
         .help = "latency of a small transfer from device to device, microseconds"),
    LINK("efficiency", REAL, efficiency, .value = "0.8", .max = 1.0,
         .help = "share of the bandwidth that the payload of large collectives reaches"),
    LINK("pj_per_bit", REAL, joules_per_bit, .scale = 1e-12,
         .help = "energy of both ends, pJ per bit; 0: not known"),
    LINK("shape", CHOICE, shape, .value = "switch", .choices = SHAPES,
         .help = "topology; in a mesh or a cube of eight (DGX-1), a group uses only the links of a "
                 "device that lead to members of the group"),
    LINK("reduces", BOOL, reduces,
         .help = "the switches add up terms of a reduction (SHARP, NVLS)"),
};
const catalog_fields catalog_link_fields = {link_rows, COUNT_OF(link_rows), "link"};

// ---- levels of a cluster ------------------------------------------------------------------------

#define LEVEL(k, what, field, ...) FIELD(cluster_level, k, what, field, __VA_ARGS__)

static const catalog_field level_rows[] = {
    LEVEL("name", TEXT, name, .help = "name of the level, such as nvlink, node, rail, pod, site"),
    LEVEL("link", TEXT, link, .help = "name of an entry of catalog/links"),
    LEVEL("devices", INT, devices, .max = 1e9,
          .help = "number of devices in one unit of this level"),
    LEVEL("gbit_s", REAL, bytes_s, .scale = GBIT,
          .help =
              "bandwidth of one device in one direction, Gbit/s, instead of ports x the link's"),
    LEVEL("latency_us", REAL, latency_s, .scale = 1e-6,
          .help = "latency, microseconds, instead of the link's"),
    LEVEL("efficiency", REAL, efficiency, .max = 1.0,
          .help = "share of the bandwidth that is reached, instead of the link's"),
    LEVEL("taper", REAL, taper, .value = "1", .min = 1, .max = 1e4,
          .help = "oversubscription: 1 is none, 7 is 7:1"),
    LEVEL("shape", CHOICE, shape, .choices = SHAPES, .value = "switch",
          .help = "topology, instead of the link's"),
    LEVEL("reduces", BOOL, reduces,
          .help = "the switches add up terms of a reduction, instead of the link's value"),
    LEVEL("dims.x", INT, dims[0], .max = 1e6, .help = "devices along x of a torus"),
    LEVEL("dims.y", INT, dims[1], .max = 1e6, .help = "devices along y of a torus"),
    LEVEL("dims.z", INT, dims[2], .max = 1e6, .help = "devices along z of a torus"),
};
const catalog_fields catalog_level_fields = {level_rows, COUNT_OF(level_rows), "level"};

// ---- clusters -----------------------------------------------------------------------------------

#define CLUSTER(k, what, field, ...) FIELD(cluster, k, what, field, __VA_ARGS__)
#define USD(k, field, text)          CLUSTER("prices." k, REAL, prices.field, .help = (text))
#define CAUSE(k, cause) \
    CLUSTER("failures.share." k, REAL, failures.share[cause], .help = "share of all failures")

static const catalog_field cluster_rows[] = {
    CLUSTER("devices", INT, devices, .is_wanted = true, .max = 1e8,
            .help = "number of all devices"),
    CLUSTER("node.devices", INT, node.devices, .is_wanted = true, .max = 1e6,
            .help = "number of devices of a node"),
    CLUSTER("node.host_memory_gb", REAL, node.host_memory_bytes, .scale = GIGA,
            .help = "host memory of a node, GB"),
    CLUSTER("node.cpu_cores", INT, node.cpu_cores, .max = 1e6, .help = "processor cores of a node"),
    CLUSTER("node.other_threads", INT, node.other_threads, .max = 1e3,
            .help = "threads of other programs that always want to run on these cores"),
    CLUSTER("node.host_gb_s", REAL, node.host_bytes_s, .scale = GIGA, .value = "25",
            .help = "bandwidth between a device and host memory in one direction, GB/s"),
    CLUSTER("node.watts", REAL, node.watts, .help = "power of a busy node without its devices, W"),
    CLUSTER("node.storage_write_gb_s", REAL, node.storage_write_bytes_s, .scale = GIGA,
            .value = "2", .help = "rate at which a node writes to the file system, GB/s"),
    CLUSTER("node.storage_read_gb_s", REAL, node.storage_read_bytes_s, .scale = GIGA, .value = "4",
            .help = "rate at which a node reads from the file system, GB/s"),
    CLUSTER("prices.list", TEXT, prices.list,
            .help = "an entry of catalog/prices, such as aws.us-east-1, whose prices on demand, "
                    "reserved and spot replace those of the cluster"),
    USD("on_demand_usd_h", on_demand_usd_h, "US dollars per device and hour"),
    USD("reserved_usd_h", reserved_usd_h,
        "US dollars per device and hour with a reservation of other length"),
    USD("reserved_1y_usd_h", reserved_1y_usd_h,
        "US dollars per device and hour with a commitment of one year"),
    USD("reserved_3y_usd_h", reserved_3y_usd_h,
        "US dollars per device and hour with a commitment of three years"),
    USD("spot_usd_h", spot_usd_h, "US dollars per device and hour if the provider may interrupt"),
    USD("owned_usd_h", owned_usd_h,
        "US dollars per device and hour of own machines, without energy"),
    USD("spot_interruptions_h", spot_interruptions_h, "interruptions of one spot node per hour"),
    USD("device_usd", device_usd,
        "purchase price of a device with its share of node and network, US dollars"),
    USD("network_usd_h", network_usd_h,
        "network per device and hour, where the device's price leaves it out"),
    // Amazon S3 Standard, US East, November 2025: the first 50 TB cost $0.023.
    CLUSTER("prices.storage_usd_gb_month", REAL, prices.storage_usd_gb_month, .value = "0.023",
            .help = "storage of kept checkpoints, per GB and month"),
    USD("egress_usd_gb", egress_usd_gb,
        "US dollars per GB that leaves the region: the last checkpoint of a run does, once"),
    CLUSTER("prices.kwh_usd", REAL, prices.kwh_usd, .value = "0.07",
            .help = "US dollars per kWh of energy"),
    CLUSTER("failures.mtbf_device_h", REAL, failures.mtbf_device_h, .value = "50677",
            .help = "device-hours between interruptions, for all causes together"),
    CAUSE("device", CAUSE_DEVICE),
    CAUSE("device_memory", CAUSE_DEVICE_MEMORY),
    CAUSE("host", CAUSE_HOST),
    CAUSE("network", CAUSE_NETWORK),
    CAUSE("storage", CAUSE_STORAGE),
    CAUSE("software", CAUSE_SOFTWARE),
    CAUSE("facility", CAUSE_FACILITY),
    CAUSE("other", CAUSE_OTHER),
    CLUSTER("failures.mtbf_node_h", REAL, failures.mtbf_node_h,
            .help = "hours between failures of a node; 0: not counted separately"),
    CLUSTER("failures.mtbf_switch_h", REAL, failures.mtbf_switch_h,
            .help = "hours between failures of a switch; 0: not counted separately"),
    CLUSTER("failures.switch_devices", INT, failures.switch_devices, .max = 1e8,
            .help = "number of devices that fail with one switch"),
    CLUSTER("failures.repair_h", REAL, failures.repair_h, .value = "24",
            .help = "hours until a failed node is back"),
    CLUSTER("failures.detect_s", REAL, failures.detect_s, .value = "60",
            .help = "seconds from a failure until the job detects it"),
    CLUSTER("failures.restart_s", REAL, failures.restart_s, .value = "300",
            .help = "seconds from then to the first new step, without reading the checkpoint"),
    CLUSTER("failures.slow_share", REAL, failures.slow_share, .max = 1.0,
            .help = "share of nodes that are slow at a time"),
    CLUSTER("failures.slow_speed", REAL, failures.slow_speed, .value = "1", .max = 1.0,
            .help = "speed of slow nodes, relative to the others"),
    CLUSTER("failures.jitter", REAL, failures.jitter, .max = 1.0,
            .help = "variation of a step on one device: standard deviation over mean"),
    CLUSTER("storage.write_gb_s", REAL, storage_write_bytes_s, .scale = GIGA,
            .help = "write rate of the whole file system, GB/s; 0: no known limit"),
    CLUSTER("storage.read_gb_s", REAL, storage_read_bytes_s, .scale = GIGA,
            .help = "read rate of the whole file system, GB/s; 0: no known limit"),
    CLUSTER("pue", REAL, pue, .value = "1.2", .min = 1, .max = 10,
            .help = "power usage effectiveness: energy of the site over that of the machines"),
};
const catalog_fields catalog_cluster_fields = {cluster_rows, COUNT_OF(cluster_rows), "cluster"};
