// Long-run simulation: computes days, cost and energy of a run from a step's time and from
// failures, restarts, checkpoints, spares and slow devices.
//
// A run has `steps` steps of equal length. Interruptions occur at random with rates per hour of the
// whole job, so the cost does not grow with the number of devices: one event is one draw. An
// interruption loses the work since the last checkpoint and the time until it is detected and the
// job has restarted; the devices that it takes out are in repair for a while, and the job waits
// when fewer are left than it needs. Every sample is a run of its own with random numbers keyed by
// (seed, sample, event); equal input gives equal bits on any machine. One pass over the events
// suffices: a run of 90 days on 200,000 devices has about ten thousand.
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
    int64_t devices;  // number in repair afterwards; 0: none, the job restarts on the same devices
    double repair_h;  // until they return
    // time between the warning and the loss (spot): long enough for a checkpoint, so no work is
    // lost
    double warning_s;
    bool is_unpaid; // the provider took the devices back, so they cost no money until they return
} sim_long_run_event;

typedef struct sim_long_run_input {
    double step_s; // without the effects below
    int64_t steps;
    int64_t devices; // number that the job needs
    sim_long_run_event events[SIM_LONG_RUN_EVENTS];
    int32_t event_count;
    double restart_s;        // from an interruption to the first new step, detection included
    double write_s;          // the run stops this long for one checkpoint
    double interval_s;       // work between two checkpoints; 0: the best interval
    double least_interval_s; // between two checkpoints: the store's bandwidth, and a minute
    // spare devices that are held; -1: as many as each sample needs at once, at the same price
    int64_t spares;
    double slowdown; // factor on every step by jitter and slow devices; 1: none
    double device_usd_h, kwh_usd;
    const char *price_kind;              // "on demand", "given"; NULL: not known
    const char *price_list, *price_date; // of catalog/prices; NULL: the cluster's entry
    double network_usd_h;          // of a device, where its price does not include the network
    double storage_usd_h;          // of all checkpoints that are kept
    double egress_usd;             // of the last checkpoint, which leaves the provider
    double committed_h;            // of each device, paid whether they are used or not; 0: none
    double checkpoint_bytes;       // of one checkpoint; 0: unknown
    double store_bytes_s;          // the store takes so many bytes per second; 0: no limit known
    double busy_watts, idle_watts; // per device, with its share of node and facility
    int64_t samples;               // 0: 1,000
    uint64_t seed;
} sim_long_run_input;

typedef struct sim_percentiles {
    double p10, p50, p90, mean;
} sim_percentiles;

// Parts of the bill in US dollars, as means over the samples; they add up to the mean cost.
typedef struct sim_bill {
    double work;   // devices of the job while it computes and saves
    double idle;   // the same devices during restarts and while the job waits for spares
    double spares; // devices that are held as spares
    double network, storage, energy;
} sim_bill;

typedef struct sim_long_run_result {
    // goodput: steps x step_s divided by the run's time. device_hours: of the devices that the job
    // needs. spare_hours: of those held as spares. spares: the largest number of devices in repair
    // at once.
    bool has_price; // otherwise cost_usd holds only parts of the bill, and is not printed
    sim_percentiles goodput, days, device_hours, spare_hours, cost_usd, energy_kwh, failures,
        spares;
    sim_bill bill;
    double interval_s;    // a multiple of the step
    bool interval_raised; // the interval that was asked for is below least_interval_s
    double store_bytes_s; // mean load on the store while the job works
    double mtbf_s;        // mean time between interruptions of the job; 0: it never fails
    double kept;          // goodput by the closed form of cost/failure.h, with enough spares
    // probability that `spares` devices suffice for one kind of event at any time; -1: not computed
    double never_lacks;
    // Average shares of the run's time; they add up to 1.
    struct {
        double work, slow, rework, save, restart, wait;
    } share;
    double by_event[SIM_LONG_RUN_EVENTS]; // average number of interruptions of a run
    int64_t samples;
} sim_long_run_result;

// Properties of a simulated step.
typedef struct sim_long_run_step {
    double step_s;
    int64_t devices;
    double state_bytes; // of one checkpoint over all ranks
} sim_long_run_step;

// Makes the input of a planned run: train.steps or train.tokens, and the keys fleet.*, checkpoint.*
// and price.*, which override the cluster's figures. fleet.mtbf_device_h covers all kinds of
// interruptions together.
void sim_long_run_input_make(const run_config *r, const cluster *c, const sim_long_run_step *step,
                             sim_long_run_input *out);
int64_t sim_long_run_steps(const run_config *r); // of the whole run, as there
// Whether a price of devices or of energy is known.
bool sim_long_run_has_price(const sim_long_run_input *in);
// ST_CONFIG_CONFLICT: the run does not end; the error says what would help.
NODISCARD status sim_long_run_simulate(arena *a, const sim_long_run_input *in,
                                       sim_long_run_result *out);
// Writes members of a JSON object, from `"days": {...}` on, without braces.
NODISCARD status sim_long_run_json(const sim_long_run_result *r, text *out);
// Writes lines for people, at most 80 columns wide.
NODISCARD status sim_long_run_print(const sim_long_run_input *in, const sim_long_run_result *r,
                                    text *out);

#ifdef __cplusplus
}
#endif
#endif
