// A training job on a device: plans (assemble/assemble.h), executor and weights. It has no clock,
// data or files; a session adds these.
#ifndef TRAIN_JOB_H
#define TRAIN_JOB_H

#include "assemble/assemble.h"
#include "checkpoint/checkpoint.h"

// Communication between the ranks of a run, for one job. All NULL: there is only one rank.
typedef struct train_ranks {
    comm *all;
    comm_group *hosts; // all ranks; the hosts use it between steps
    // Another job on these ranks, with an equal layout, whose groups this one uses; NULL: its own.
    const struct train_job *lender;
    // Where the memory of the arena is kept between jobs, with its pages; NULL: it is not.
    comm_memory **kept;
    bool kept_is_fresh; // no job has had it: it has no values, where fresh memory has none
    bool keeps_state;   // that memory, if there is enough of it, has the state of these plans
} train_ranks;

typedef struct train_job {
    const host *h;
    assemble_plans *plans;
    exec *e;
    ckpt_state state;
    train_ranks ranks;
    comm_group **groups; // [row of the plans' groups]
    exec_shared shared;  // the device's arena, where peers reach it
    bool has_state;      // the arena has the state that was kept in its memory
} train_job;

// Creates the device and its arena, uploads constants, clears optimizer state and the step block.
NODISCARD status train_job_create(const host *h, arena *a, assemble_plans *plans,
                                  const assemble_options *options, const train_ranks *ranks,
                                  trace_ring *trace, train_job *out);
void train_job_destroy(train_job *job);
// The arena of the device, which ranks share and the host can touch; NULL: it is not so.
char *train_job_memory(const train_job *job);
// Clears optimizer state and the step block again.
NODISCARD status train_job_clear(train_job *job);
// Loads weights from model.from (a Hugging Face folder or a checkpoint), or sets initial values
// from the seed.
NODISCARD status train_job_weights(train_job *job, arena *a);
// The same from another folder; NULL: from the seed.
NODISCARD status train_job_weights_of(train_job *job, arena *a, const char *from);
// Its two parts where the run has an adapter: the base model, which checkpoints do not hold, and
// the adapter, from adapter.from or with initial values.
static inline bool train_job_has_base(const train_job *job)
{
    return job->plans->spec->adapter.rank > 0;
}
NODISCARD status train_job_base(train_job *job, arena *a);
NODISCARD status train_job_adapter(train_job *job, arena *a);
// Sets an adapter whose terms are zero, so that the model is its base model, the one of `from`.
NODISCARD status train_job_adapter_off(train_job *job, arena *a, const char *from);
// Sets the run's first loss scale: for a loaded state of another precision.
NODISCARD status train_job_scale_reset(train_job *job);
// Predicts the bytes of a GPU that its context, the code of kernels and libraries take outside the
// arena, by the catalogue's entry of that GPU; 0 on other devices.
NODISCARD status train_outside_bytes(const host *h, arena *a, const run_config *r, int64_t *out);
// Describes the inputs, other than the configuration, that determine the bits of a run: device,
// backend and kernel level.
NODISCARD status train_job_numerics(const train_job *job, const assemble_options *options, arena *a,
                                    char **out);

step_settings train_step_settings(const run_config *r);

#endif
