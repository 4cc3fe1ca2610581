// The executor: does what plans say, on whatever device it is given.
//
// It is a state machine that never blocks: exec_advance posts as much of the current step as the
// device's queues take and says what it waits for, so one thread can run any number of ranks. It
// branches on no value that a step computes; it does not know what a device is made of. Trainer,
// generation and (given a virtual device) simulator are the same executor.
//
//   exec_begin(step n) .. exec_advance until POSTED .. exec_begin(step n+1) ..  exec_results(step n)
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
    const kern_device_api *api;
    kern_device_config device;
    plan_table *run;          // placed; borrowed
    const plan *const *plans; // all plans that will run; borrowed
    int64_t plan_count;
    int64_t memory_limit_bytes; // 0: none; a larger arena is refused
    comm_group *const *groups;  // [row of run->groups]; borrowed
    exec_codec codec; // of plans whose gradients travel compressed; its codec NULL: in virtual time
} exec_config;

typedef enum exec_state {
    EXEC_IDLE,    // nothing begun
    EXEC_RUNNING, // posted some; call again
    EXEC_WAITING, // a queue is full; call again after exec_sleep, or later
    EXEC_POSTED   // all of the step is posted; it may still be running
} exec_state;

// One batch tensor of a step, in host memory; copied by exec_begin.
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
} exec_input;

// The groups of a plan table, by its rows: for exec_config. All ranks make those that they share in the same
// order, whatever the order in their tables. On failure what was made is destroyed.
NODISCARD status exec_groups_make(arena *a, comm *all, const plan_mesh *mesh, const plan_table *run,
                                  comm_group ***out);
void exec_groups_destroy(comm_group **groups, const plan_table *run); // NULL is legal

NODISCARD status exec_create(const exec_config *config, exec **out);
void exec_destroy(exec *e); // waits for the device; NULL is legal

// Begins a step of one of the plans. The step before must be posted (not done).
NODISCARD status exec_begin(exec *e, const plan *p, const exec_input *input);
NODISCARD status exec_advance(exec *e, exec_state *state);
NODISCARD status exec_sleep(exec *e); // until the device has made room; the host's thread sleeps
// exec_advance and exec_sleep until posted.
NODISCARD status exec_post(exec *e);
// Results of the step before the one begun last (or of the last, after exec_finish). Waits for its
// read-back. *step is the number that exec_begin was given; false in *any: there is none.
NODISCARD status exec_results(exec *e, step_device *out, int64_t *step, bool *any);
// What the compressed sums of that step measured, added over the ranks: COMM_REALS for each bucket of
// its plan, until the next exec_begin. NULL: it had none.
const double *exec_losses(const exec *e);
// Of communication, since the beginning: the time in which any was on its way, on whichever lanes, and that
// for which products stood still; zeros where there is none.
kern_lane_times exec_lane_times(const exec *e);
// Host clock when the step whose results were taken last was done.
int64_t exec_results_ns(const exec *e);
// Waits until everything posted is done.
NODISCARD status exec_finish(exec *e);

// To look into steps (bisect): right after node `node` of action `action` (of a communication: 0) the
// lane copies the tensor's first bytes to host memory, before anything can overwrite them. The plan is
// as it is without.
typedef struct exec_tap {
    int32_t action, node;
    int32_t ref; // as in bindings
    int64_t bytes;
    void *to; // there until exec_finish
} exec_tap;
// For all steps of this plan from now on; sorted by action and node; borrowed. NULL: none. After exec_finish.
void exec_tap_set(exec *e, const plan *p, const exec_tap *taps, int64_t count);

// Run tensors from the host, between steps (after exec_finish). Offsets and sizes in bytes.
NODISCARD status exec_write(exec *e, int64_t run_row, int64_t offset, const void *data,
                            int64_t bytes);
// All bytes zero. Costs nothing, and touches no page, where the device's fresh memory is zero.
// Before the first step only.
NODISCARD status exec_zero(exec *e, int64_t run_row);
// The model's constants, where the run has them.
NODISCARD status exec_constants_write(exec *e, const op_model *m);
// The step block as it is before the first step.
NODISCARD status exec_step_reset(exec *e, double loss_scale);
NODISCARD status exec_read(exec *e, int64_t run_row, int64_t offset, void *data, int64_t bytes);
// A transient tensor of the plan that ran last, by its row, after exec_finish: outputs, kept gradients.
NODISCARD status exec_read_transient(exec *e, const plan *p, int32_t row, void *data,
                                     int64_t bytes);

int64_t exec_arena_bytes(const exec *e); // allocated = predicted
int64_t
exec_touched_bytes(const exec *e); // measured: the highest byte that an operand ever covered
int64_t exec_poisoned_bytes(const exec *e); // filled with NaN because they were dead (plan.poison)
int exec_threads(const exec *e);
kern_level exec_level(const exec *e);
// Host clock when the first action of the first step was posted; 0 before.
int64_t exec_first_action_ns(const exec *e);

// plan_workspace_fn and plan_panels_fn over a backend: context is an exec_workspace_context.
typedef struct exec_workspace_context {
    const kern_backend *backend;
    int threads;
    bool strict;
    kern_level level; // panels: that the run will have
} exec_workspace_context;
int64_t exec_workspace(void *context, const op_program *program, const op_node *node,
                       const extent_binding *bound, int64_t seq, int64_t cache_seq);
int64_t exec_panels(void *context, const op_program *program, const op_node *node,
                    const extent_binding *bound);

#ifdef __cplusplus
}
#endif
#endif
