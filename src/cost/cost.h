// Prices: how long an operation or a message takes on a cluster, with a software's habits. Pure.
//
// One price list for the search, the timeline and the simulator (design.md): FLOPs and bytes come from
// the operations' rows (op_kind.cost) and the plan's records, speeds from a `cluster`, habits from a
// `cost_profile`. Times are whole nanoseconds, so sums do not depend on their order.
//
//   product      max(FLOPs / (peak x share), bytes / memory) + launch;   share falls with small m, n, k, with
//                tiles that stand over the edge and with the last wave of tiles that fills some units only
//   attention    FLOPs of the pairs that the mask leaves / (peak x share), or its bytes; on processors the share
//                falls with short sequences
//   other        bytes / (memory x share), or operands / rate where arithmetic is slower (processors)
//   message      the slowest level of the hierarchy that the group spans, plus a latency per step of the
//                algorithm; the cheaper of ring and tree for sums, of ring and doubling for gathers
//
// Bandwidth of a level is what one device has, both ways at once. What several devices of one unit below
// fetch for each other from outside they share: a gather into a node of eight comes over eight NICs.
#ifndef COST_COST_H
#define COST_COST_H

#include "plan/cluster.h"
#include "plan/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

// How fast a software is. All shares are of what the device's and the links' entries say good code reaches;
// cost_profile_trireme() is all ones and no habits: the plan as it is.
typedef struct cost_habits cost_habits; // (cost/habits.h)
typedef struct cost_profile {
    const char *name, *about;
    double gemm, attention, memory;  // speed of kernels, relative to the device's entry
    double launch;                   // factor on the device's launch time per operation
    double bandwidth[TRAFFIC_COUNT]; // of messages, relative to the links' entries
    // Share of the time of messages that hides behind products: of tp, cp and ep, which stand between products; of dp and
    // pp, which the plan has beside them: below 1 the rest holds the products up, or, of gradients that are summed once in
    // a step, comes after the backward pass.
    double overlap[TRAFFIC_COUNT];
    double slack;              // share of what lives from action to action that an allocator loses
    int64_t context_bytes;     // the runtime's own, per device
    const cost_habits *habits; // of other software, borrowed; NULL: none
} cost_profile;
// What `trireme` does.
cost_profile cost_profile_trireme(void);

// What prices are made from; borrowed.
typedef struct cost_model {
    const cluster *c;
    const cost_profile *profile;
    bool
        fp8; // products of layers run in fp8 where the device has it, their bf16 operands cast before
    int64_t top_k; // experts that a token takes; 0: the model has none
} cost_model;

// A row-major matrix product: m x n outputs, sums of k.
typedef struct cost_gemm {
    double m, n, k;
} cost_gemm;
// The unit that products of this type run on; one that the device lacks runs on the next wider.
cluster_math cost_math_of(const cluster_device *d, dtype type);
double cost_peak_flops(const cluster_device *d, dtype type); // dense, of that unit
// A processor, and no accelerator beside one.
bool cost_is_processor(const cluster_device *d);
// A device that is held to limit_watts: power goes by the clock, and by its cube where the voltage can follow; between
// the two, products and attention have the square root of what is left beside idle_watts. Again: nothing.
void cost_limit_power(cluster_device *d);
// A processor's units dealt out to so many ranks: fewer wait for each other, so all types of work gain what
// `team` says is lost between all of them.
void cost_units_share(cluster_device *d, int64_t ranks);
// Share of the peak that a product reaches, between 0 and 1.
double cost_gemm_share(const cluster_device *d, const cost_gemm *p, cluster_math math);
int64_t cost_gemm_ns(const cost_model *m, const cost_gemm *p, dtype type, double bytes);
int64_t cost_memory_ns(const cost_model *m, double bytes); // without the launch
int64_t cost_launch_ns(const cost_model *m);
// One operation of a program, launch included. 0 for those that are messages.
int64_t cost_node_ns(const cost_model *m, const op_program *p, const op_node *node,
                     const extent_binding *bound);
// A lower bound that needs no shapes: FLOPs at the best share, or bytes; never more than the sum of the
// operations that they are of, where none of their bytes are fused away (profile.pointwise).
int64_t cost_floor_ns(const cost_model *m, double flops, double bytes, dtype type);
// What an allocator loses in a step of so many bytes of activations, and of gradients of this type.
int64_t cost_lost_bytes(const cost_profile *p, double activations, int64_t gradients, dtype type);

// ---- messages -----------------------------------------------------------------------------------

// How the ranks of a group stand in the hierarchy. Device number = rank of the job, tp innermost.
typedef struct cost_group {
    int64_t ranks;
    // [level] ranks of the group within one unit of the level (itself included), and how many units of
    // the level below those are in.
    int64_t inside[CLUSTER_LEVELS], units[CLUSTER_LEVELS];
    int32_t top;   // level that holds them all
    bool flat;     // the job has no stages
    uint32_t axes; // of the mesh: what the profile's habits go by
    // Of a link between stages: neighbours of tp that have the same rows; 0: each has its own (layout.sp).
    int64_t same_rows;
} cost_group;
// `members`: device numbers, of which `rank` is this rank's.
void cost_group_make(const cluster *c, const plan_members *members, int64_t rank, uint32_t axes,
                     cost_group *out);
// The same of a plan's group, as the rank of the mesh sees it.
void cost_group_of(const cluster *c, const plan_mesh *mesh, const plan_group *g, cost_group *out);
// bytes: of the whole tensor: all pieces of a gather or scatter; of what one rank sends of an all-to-all or
// to its peer. 0 for one rank.
int64_t cost_collective_ns(const cost_model *m, const cost_group *g, op_collective op,
                           double bytes);
// Ranks of `tp` that have all rows of what goes between stages; 0: each has its own (layout.sp).
int64_t cost_same_rows(const op_model *m, int64_t tp);
// Of a device's links at this level those that lead to the other ones of so many units: all, but where no switch is.
double cost_links_share(const cluster *c, int32_t level, int64_t units);
// A gather over ranks of tp that no plan has, and that is not cast first.
int64_t cost_tp_gather_ns(const cost_model *m, int64_t tp, double bytes);
// Of a message between stages what comes after it has arrived: those who have the same rows send a piece each, and
// gather there (profile.pp_pieces). 0: each sends all.
int64_t cost_pieces_ns(const cost_model *m, const cost_group *link, double bytes);
// A sum that travels compressed: every rank sends each of the others a stream; and where all get the sum, not
// `scatters`, once more.
int64_t cost_compressed_ns(const cost_model *m, const cost_group *g, int64_t stream_bytes,
                           bool scatters);
// A communication of a plan; of one that is compressed the bytes are those of all streams that a rank sends at once.
double cost_comm_bytes(const plan *p, const plan_comm *c, int64_t ranks);
int64_t cost_comm_ns(const cost_model *m, const cost_group *g, const plan *p, const plan_comm *c);
// Between a device and its host.
int64_t cost_copy_ns(const cost_model *m, double bytes);

// Share of a message's time that hides behind products where the plan has it between them, or beside them (`overlapped`):
// there it is what the player need not add to what is played, and 1 of all that profile.beside and dp_beside say.
double cost_overlap(const cost_profile *p, const cost_group *g, bool overlapped);
// Share of a message's time by which products beside it slow down: a slower link takes as much less of the device.
double cost_crowding(const cost_model *m, const cost_group *g);

#ifdef __cplusplus
}
#endif
#endif
