// Prices: the time that an operation or a collective takes on a cluster with the habits of a
// profile. Pure.
//
// The search, the timeline and the simulator share these prices (design.md): FLOPs and bytes come
// from the operations' rows (op_kind.cost) and the plan's records, speeds from a `cluster`, habits
// from a `cost_profile`. Times are whole nanoseconds, so sums do not depend on their order.
//
//   GEMM        max(FLOPs / (peak x share), bytes / memory) + launch; share falls with small m, n,
//               k, with tiles over the edge and with a last wave of tiles that leaves units idle
//   attention   FLOPs of the unmasked pairs / (peak x share), or its bytes; on processors the share
//               falls with short sequences
//   other       bytes / (memory x share), or operands / rate if arithmetic is slower (processors)
//   collective  the slowest level of the hierarchy that the group spans, plus a latency per step of
//               the algorithm; the cheaper of ring and tree for sums, ring and doubling for gathers
//
// The bandwidth of a level is that of one device, in both directions at once. Devices of one unit
// below share what they fetch from outside: a gather into a node of eight uses eight NICs.
#ifndef COST_COST_H
#define COST_COST_H

#include "plan/cluster.h"
#include "plan/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

// The speed of a software. All shares are relative to what the entries of device and links say good
// code reaches; cost_profile_trireme() is all ones without habits: the plan as it is.
typedef struct cost_habits cost_habits; // in cost/habits.h
typedef struct cost_profile {
    const char *name, *about;
    double gemm, attention, memory;  // speed of kernels, relative to the device's entry
    double launch;                   // factor on the device's launch time per operation
    double bandwidth[TRAFFIC_COUNT]; // of collectives, relative to the links' entries
    // Share of the time of collectives that GEMMs hide. Collectives of tp, cp and ep stand between
    // GEMMs; the plan overlaps those of dp and pp. Below 1, the rest delays the GEMMs, or, for
    // gradients that are summed once in a step, comes after the backward pass.
    double overlap[TRAFFIC_COUNT];
    double slack;              // share of the bytes alive between actions that an allocator loses
    int64_t context_bytes;     // of the runtime, per device
    const cost_habits *habits; // habits of other software, borrowed; NULL: none
} cost_profile;
// The profile of this program.
cost_profile cost_profile_trireme(void);

// The inputs of prices; borrowed.
typedef struct cost_model {
    const cluster *c;
    const cost_profile *profile;
    // layers run GEMMs in fp8 where the device supports it, and cast their bf16 operands first
    bool fp8;
    int64_t top_k; // experts that a token takes; 0: the model has none
} cost_model;

// A row-major GEMM: m x n outputs, each a sum of k terms.
typedef struct cost_gemm {
    double m, n, k;
} cost_gemm;
// The unit that GEMMs of this type run on; if the device lacks it, the next wider one.
cluster_math cost_math_of(const cluster_device *d, dtype type);
double cost_peak_flops(const cluster_device *d, dtype type); // dense, of that unit
// True for a processor, false for an accelerator.
bool cost_is_processor(const cluster_device *d);
// Limits a device to limit_watts. Power is proportional to the clock, and to its cube where the
// voltage can follow; as a value between the two, GEMMs and attention slow down by the square root
// of the share of power left above idle_watts. A second call changes nothing.
void cost_limit_power(cluster_device *d);
// Divides a processor's units among ranks. With fewer units per rank less time is lost in waiting
// for each other, so all kinds of work gain the share that `team` says is lost between all units.
void cost_units_share(cluster_device *d, int64_t ranks);
// Share of the peak that a GEMM reaches, between 0 and 1.
double cost_gemm_share(const cluster_device *d, const cost_gemm *p, cluster_math math);
int64_t cost_gemm_ns(const cost_model *m, const cost_gemm *p, dtype type, double bytes);
int64_t cost_memory_ns(const cost_model *m, double bytes); // without the launch
int64_t cost_launch_ns(const cost_model *m);
// Time of one operation of a program, launch included; 0 for collectives.
int64_t cost_node_ns(const cost_model *m, const op_program *p, const op_node *node,
                     const extent_binding *bound);
// A lower bound that needs no shapes: FLOPs at the best share, or bytes. It never exceeds the sum
// over the operations, unless their bytes are fused away (profile.pointwise).
int64_t cost_floor_ns(const cost_model *m, double flops, double bytes, dtype type);
// Bytes that an allocator loses in a step with these bytes of activations and of gradients of this
// type.
int64_t cost_lost_bytes(const cost_profile *p, double activations, int64_t gradients, dtype type);

// ---- collectives -------------------------------------------------------------------------------

// Placement of a group's ranks in the hierarchy. Device number = rank of the job, tp innermost.
typedef struct cost_group {
    int64_t ranks;
    // [level] number of the group's ranks within one unit of the level (this rank included), and
    // number of units of the level below that hold them.
    int64_t inside[CLUSTER_LEVELS], units[CLUSTER_LEVELS];
    int32_t top;   // level that contains them all
    bool flat;     // the job has no stages
    uint32_t axes; // axes of the mesh, which select the profile's habits
    // For a link between stages: number of tp neighbours that hold the same rows; 0: each has its
    // own (layout.sp).
    int64_t same_rows;
} cost_group;
// `members`: device numbers; `rank` is this rank's.
void cost_group_make(const cluster *c, const plan_members *members, int64_t rank, uint32_t axes,
                     cost_group *out);
// The same for a group of a plan, seen from the rank of the mesh.
void cost_group_of(const cluster *c, const plan_mesh *mesh, const plan_group *g, cost_group *out);
// bytes: of the whole tensor (all pieces) for a gather or scatter; of what one rank sends for an
// all-to-all or a send. 0 for one rank.
int64_t cost_collective_ns(const cost_model *m, const cost_group *g, op_collective op,
                           double bytes);
// Number of `tp` ranks that hold all rows of what crosses a stage boundary; 0: each has its own
// (layout.sp).
int64_t cost_same_rows(const op_model *m, int64_t tp);
// Share of a device's links at this level that lead to the others of this many units: all links,
// unless there is no switch.
double cost_links_share(const cluster *c, int32_t level, int64_t units);
// Time of a gather over tp that is not in the plan and whose input is not cast first.
int64_t cost_tp_gather_ns(const cost_model *m, int64_t tp, double bytes);
// Time after the arrival of a transfer between stages: ranks with the same rows each send a piece,
// which the receivers gather (profile.pp_pieces). 0: each rank sends all rows.
int64_t cost_pieces_ns(const cost_model *m, const cost_group *link, double bytes);
// Time of a compressed sum: every rank sends a stream to each of the others; unless it only
// `scatters`, the sums are sent once more.
int64_t cost_compressed_ns(const cost_model *m, const cost_group *g, int64_t stream_bytes,
                           bool scatters);
// Bytes of a plan's communication; for a compressed one, of all streams that a rank sends at once.
double cost_comm_bytes(const plan *p, const plan_comm *c, int64_t ranks);
int64_t cost_comm_ns(const cost_model *m, const cost_group *g, const plan *p, const plan_comm *c);
// Time of a copy between a device and its host.
int64_t cost_copy_ns(const cost_model *m, double bytes);

// Share of a collective's time that GEMMs hide, if the plan has it between them or overlapped with
// them (`overlapped`). In the second case it is the part that the simulator need not add, and 1 for
// the collectives that the habits `beside` and `dp_beside` cover.
double cost_overlap(const cost_profile *p, const cost_group *g, bool overlapped);
// Share of a collective's time by which overlapped GEMMs slow down: a slower link takes
// proportionally less of the device.
double cost_crowding(const cost_model *m, const cost_group *g);

#ifdef __cplusplus
}
#endif
#endif
