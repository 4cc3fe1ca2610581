// The run level: what failures, restarts, checkpoints, spares and slow devices make of a step's time.
//
// A run is `steps` steps, each as long as any other. Interruptions come by chance, at rates per hour of
// the whole job, so nothing here grows with the number of devices: one event is one draw. Each takes the
// work since the last checkpoint, the time until it is noticed and the job stands again, and the devices
// that it took out are in repair for a while; when there are fewer left than the job needs, it waits.
// Every sample is a run of its own, with random numbers keyed by (seed, sample, event); the same input
// gives the same bits anywhere. Time is one pass over the events: a run of 90 days on 200,000 devices
// has some ten thousand.
#ifndef SIM_LONG_RUN_H
#define SIM_LONG_RUN_H

#include "base/text.h"
#include "config/run_config.h"
#include "plan/cluster.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SIM_LONG_RUN_EVENTS = 16 };

// One kind of interruption.
typedef struct sim_long_run_event {
    const char *name; // "device", "software", "switch"
    double rate_h;    // of the whole job, per hour
    int64_t devices;  // that are then in repair; 0: none, it begins again on the same ones
    double repair_h;  // until they are back
    double
        warning_s; // known so long before (spot): long enough for a checkpoint, and no work is lost
} sim_long_run_event;

typedef struct sim_long_run_input {
    double step_s; // without anything of what follows
    int64_t steps;
    int64_t devices; // that the job needs
    sim_long_run_event events[SIM_LONG_RUN_EVENTS];
    int32_t event_count;
    double restart_s;        // from an interruption to the first new step, its detection included
    double write_s;          // for which one checkpoint holds the run
    double interval_s;       // of work between two; 0: the best
    double least_interval_s; // a checkpoint is on its way so long
    int64_t spares;          // devices; -1: as many as are needed, none of them paid for
    double slowdown;         // of every step by jitter and slow devices; 1: none
    double device_usd_h, kwh_usd;
    double busy_watts, idle_watts; // of a device, its part of node and hall in them
    int64_t samples;               // 0: 1,000
    uint64_t seed;
} sim_long_run_input;

typedef struct sim_percentiles {
    double p10, p50, p90, mean;
} sim_percentiles;

typedef struct sim_long_run_result {
    // goodput: steps x step_s over the run's time. spares: most devices in repair at once.
    sim_percentiles goodput, days, device_hours, cost_usd, energy_kwh, failures, spares;
    double interval_s; // whole steps
    double mtbf_s;     // of the job; 0: it never fails
    double kept;       // goodput as cost/failure.h has it, spares never lacking
    double
        never_lacks; // P(`spares` devices of one kind of event are enough at any time); -1: not asked
    // Of the run's time, on the average: adds up to 1.
    struct {
        double work, slow, rework, save, restart, wait;
    } share;
    double by_event[SIM_LONG_RUN_EVENTS]; // interruptions of a run, on the average
    int64_t samples;
} sim_long_run_result;

// What a simulated step says of itself.
typedef struct sim_long_run_step {
    double step_s;
    int64_t devices;
    double state_bytes; // of one checkpoint, all ranks together
} sim_long_run_step;

// The input of a planned run: train.steps or train.tokens, fleet.*, checkpoint.*, price.* over what the
// cluster says. fleet.mtbf_device_h stands for all interruptions together.
void sim_long_run_input_make(const run_config *r, const cluster *c, const sim_long_run_step *step,
                             sim_long_run_input *out);
// ST_CONFIG_CONFLICT: a run that does not end, with what would help.
NODISCARD status sim_long_run_simulate(arena *a, const sim_long_run_input *in,
                                       sim_long_run_result *out);
// Members of a JSON object, from `"days": {...}` on, without braces.
NODISCARD status sim_long_run_json(const sim_long_run_result *r, text *out);
// Lines for people, at most 80 columns.
NODISCARD status sim_long_run_print(const sim_long_run_input *in, const sim_long_run_result *r,
                                    text *out);

#ifdef __cplusplus
}
#endif
#endif
