// The executor: runs plans on a device and posts their collectives to a transport.
//
// It is a state machine that never blocks: exec_advance posts as much of the current step as the
// device's queues take and returns, so one thread can run any number of ranks. It branches on no
// value that a step computes, and it knows neither the kind of the device nor that of the
// transport. The trainer and generation use it with real ones, the simulator with virtual ones.
//
//   exec_begin(step n) .. exec_advance until POSTED .. exec_begin(step n+1) .. exec_results(step n)
//
// A step's results are read one step late, so the device never waits for the host.
#ifndef EXEC_EXEC_H
#define EXEC_EXEC_H

#include "comm/comm.h"
#include "exec/compress.h"
#include "kernels/kernels.h"
#include "plan/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct exec exec;

typedef struct exec_config {
    const device_api *api;
    device_config device;
    plan_table *run;          // it has offsets; borrowed
    const plan *const *plans; // all plans that will run; borrowed
    int64_t plan_count;
    int64_t memory_limit_bytes; // 0: none; a larger arena is refused
    comm_group *const *groups;  // [row of run->groups]; borrowed
    bool graphs;                // steps are captured and replayed where the device can
    // Encodes the gradients of plans with compressed sums. Its codec is NULL in virtual time, where
    // the transport only needs prices.
    exec_codec codec;
} exec_config;

typedef enum exec_state {
    EXEC_IDLE,    // no step was begun
    EXEC_RUNNING, // a part of the step was posted; call again
    EXEC_WAITING, // a queue is full; call again after exec_sleep, or later
    EXEC_POSTED   // the whole step is posted; the device may still be running it
} exec_state;

// One batch tensor of a step in host memory. exec_begin copies it.
typedef struct exec_batch {
    const char *name; // of the program's ROLE_BATCH tensor: "ids"
    const void *data;
    int64_t bytes;
} exec_batch;

enum { EXEC_MAX_BATCH = 8 };
typedef struct exec_input {
    step_host host;
    step_settings settings;
    exec_batch batch[EXEC_MAX_BATCH];
    int batch_count;
    // Sequences between those of the plan's rank and those of the batch: that of another rank of
    // dp, with as many. Random numbers are those of the batch's sequences.
    int64_t moved;
} exec_input;

// Makes the groups of a plan table, by its rows, for exec_config. Ranks make the groups that they
// share in the same order, independent of the order in their tables. A failure destroys the groups
// that were made.
NODISCARD status exec_groups_make(arena *a, comm *all, const plan_mesh *mesh, const plan_table *run,
                                  comm_group ***out);
void exec_groups_destroy(comm_group **groups, const plan_table *run); // NULL is legal

// The device's arena of one of several ranks, where the others of its host reach it.
typedef struct exec_shared {
    comm *ranks;         // borrowed
    comm_memory *memory; // NULL: the device hides it
    // Where the arena's memory is kept after exec_destroy, and taken from if there is enough of it;
    // NULL: it is not kept.
    comm_memory **kept;
    bool kept_is_fresh; // no device has had it, so its bytes are as those of new memory
    bool is_kept;       // set: the memory is the one that was kept
} exec_shared;
// Sets the rank's device and, unless that hides its memory, the arena. Keeps `shared`, with the
// ranks set, until exec_destroy.
void exec_memory_share(exec_shared *shared, exec_config *wanted);

NODISCARD status exec_create(const exec_config *config, exec **out);
void exec_destroy(exec *e); // waits for the device; NULL is legal

// Begins a step of one of the plans. The step before must be posted (not done).
NODISCARD status exec_begin(exec *e, const plan *p, const exec_input *input);
NODISCARD status exec_advance(exec *e, exec_state *state);
NODISCARD status exec_sleep(exec *e); // until a queue of the device has space again
// Calls exec_advance and exec_sleep until the step is posted.
NODISCARD status exec_post(exec *e);
// Gives the results of the step before the one begun last (of the last one after exec_finish) and
// waits for its read-back. *step is the number that exec_begin got. *any is false if there is no
// such step.
NODISCARD status exec_results(exec *e, step_device *out, int64_t *step, bool *any);
// Returns what the compressed sums of that step measured, added over the ranks: COMM_REALS for each
// bucket of its plan, valid until the next exec_begin. NULL: the step had none.
const double *exec_losses(const exec *e);
// Returns the loads of experts of that step over all ranks (op/step.h: step_load_words of the
// model), valid until the next exec_begin. NULL: the plan counts none.
const int64_t *exec_loads(const exec *e);
// Returns times since exec_create: in worked_ns the time with any collective in progress, on any
// stream, in awaited_ns the time for which the compute stream waited for one. Both are zero without
// groups. axes: only collectives of groups along these axes (plan_group.axes), whose times are
// added; 0: all.
device_stream_times exec_stream_times(const exec *e, uint32_t axes);
// Host clock at the end of the step whose results were taken last.
int64_t exec_results_ns(const exec *e);
// Posts the rest of the step and waits until the device has done everything.
NODISCARD status exec_finish(exec *e);

// Waits until the device is idle, also after a failure, whose posted rest it drops.
void exec_settle(exec *e);

// A probe of a step: right after node `node` of action `action` (0 for a communication) the stream
// copies the tensor's first bytes to host memory, and then calls a function, before anything can
// overwrite the tensor. The plan does not change.
typedef struct exec_probe {
    int32_t action, node;
    int32_t ref;         // as in bindings
    int64_t bytes;       // 0: nothing is copied
    void *to;            // valid until exec_finish
    device_host_fn call; // NULL: none
    void *context;
} exec_probe;
// Sets the probes of all later steps of this plan; call it after exec_finish. They are sorted by
// action and node, and borrowed. NULL removes them.
void exec_probes_set(exec *e, const plan *p, const exec_probe *probes, int64_t count);
// Returns the probes that are set; NULL: none are.
const exec_probe *exec_probes_of(exec *e, const plan *p, int64_t *count);

// The seal of a node's calls in all later steps of a plan, where kernels take one (kern_seals) and
// the host touches the device's memory. Like probes, seals are set after exec_finish, sorted and
// borrowed.
typedef struct exec_seal {
    int32_t action, node;
    kern_seal seal;
} exec_seal;
void exec_seals_set(exec *e, const plan *p, const exec_seal *seals, int64_t count);

// These read and write run tensors between steps (after exec_finish). Offsets and sizes are in
// bytes.
NODISCARD status exec_write(exec *e, int64_t run_row, int64_t offset, const void *data,
                            int64_t bytes);
// Fills a tensor with zeros, before the first step only. It costs nothing and touches no page on a
// device whose fresh memory is zero.
NODISCARD status exec_zero(exec *e, int64_t run_row);
// Writes those constants of the model that the run has.
NODISCARD status exec_constants_write(exec *e, const op_model *m);
// Writes the step block of the first step.
NODISCARD status exec_step_reset(exec *e, double loss_scale);
NODISCARD status exec_read(exec *e, int64_t run_row, int64_t offset, void *data, int64_t bytes);
// Reads a transient tensor (an output, a kept gradient) of the plan that ran last, by its row,
// after exec_finish.
NODISCARD status exec_read_transient(exec *e, const plan *p, int32_t row, void *data,
                                     int64_t bytes);
// Takes memory of the host to which these functions copy directly (device_api.host_alloc), zeroed.
// It belongs to the executor.
NODISCARD status exec_host_memory(exec *e, int64_t bytes, void **out);

int64_t exec_arena_bytes(const exec *e); // allocated, which is what the plan predicts
const void *exec_arena(const exec *e);   // where it lies; NULL: the device hides its memory
// Measured: memory of the device outside the arena (device_memory_info); 0: not known.
int64_t exec_outside_bytes(const exec *e);
int64_t exec_touched_bytes(const exec *e);  // measured: the highest byte that any operand covered
int64_t exec_poisoned_bytes(const exec *e); // dead bytes that were filled with NaN (plan.poison)
device_facts exec_facts(const exec *e);
double exec_peak_flops(const exec *e, dtype type); // of the device (device_api)
// Host clock at which the first action of the first step was posted; 0 before that.
int64_t exec_first_action_ns(const exec *e);

// Steps so far, on a device with graphs: those that were one launch of a graph, the first ones of
// their plans, which prepare the kernels, and others that were posted call by call.
typedef struct exec_graphs {
    int64_t replayed, prepared, refused;
    const char *why;    // of the last refused one; NULL: none was
    int64_t posting_ns; // time of the host in exec_advance
} exec_graphs;
exec_graphs exec_graphs_of(const exec *e); // all zero: no graphs are wanted or possible

// Communications of a plan between several ranks, on a device whose memory the host cannot touch:
// those that NCCL posts, those for which GPUs read each other's memory, and those that go through
// the host's memory. All zero on other devices.
typedef struct exec_ways {
    int64_t library, peers, host;
} exec_ways;
exec_ways exec_ways_of(const exec *e, const plan *p);

// plan_workspace_fn and plan_packed_bytes_fn of a backend. Their context is an
// exec_workspace_context.
typedef struct exec_workspace_context {
    const kern_context *kernels; // of the run
    bool strict;
} exec_workspace_context;
int64_t exec_workspace(void *context, const op_program *program, const op_node *node,
                       const extent_binding *bound, int64_t seq, int64_t cache_seq);
bool exec_fuses(void *context, const plan *p, const op_program *program, const op_node *first,
                const op_node *second, const extent_binding *bound);
int64_t exec_packed_bytes(void *context, const op_program *program, const op_node *node,
                          const extent_binding *bound);

#ifdef __cplusplus
}
#endif
#endif
