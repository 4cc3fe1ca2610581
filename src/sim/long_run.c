// Simulates long runs with failures by sampling. A sample advances from interruption to
// interruption: interruptions are equally likely at any time, so one exponential draw gives the
// time to the next one and a division gives the number of checkpoints before it.
#include "sim/long_run.h"
#include "base/rng.h"
#include "cost/failure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    SAMPLES = 1000,
    EVENTS_ALL =
        40000000, // of all samples: a few seconds; above it the simulation takes fewer samples
    EVENTS_ONE = 2000000, // of one sample
    SAMPLES_LEAST = 20
};

// A heap of devices in repair; those that return first are on top.
typedef struct repair {
    double until_s;
    int64_t devices;
    bool is_unpaid;
} repair;
typedef struct repairs {
    arena *a;
    repair *heap;
    int64_t count, capacity;
    int64_t devices; // sum over the heap
} repairs;

typedef struct sample {
    const sim_long_run_input *in;
    double interval_s; // wall time at work between two checkpoints, slowdown included
    double rate_s;     // rate of all interruptions
    double before[SIM_LONG_RUN_EVENTS]; // share of interruptions of this and all kinds before it
    uint32_t number;
    uint64_t drawn;
    repairs out;
    // Results of the sample.
    double wall_s, saved_s, rework_s, save_s, restart_s, wait_s;
    double unpaid_s; // device-seconds that the provider took back
    int64_t failures, most_out;
    int64_t by_event[SIM_LONG_RUN_EVENTS];
} sample;

// ---- repairs -----------------------------------------------------------------------------------

static status repairs_push(repairs *q, repair r)
{
    TRY(arena_grow(q->a, (void **)&q->heap, &q->capacity, q->count + 1, (int64_t)sizeof(repair)));
    int64_t i = q->count++;
    for (; i > 0 && q->heap[(i - 1) / 2].until_s > r.until_s; i = (i - 1) / 2) {
        q->heap[i] = q->heap[(i - 1) / 2];
    }
    q->heap[i] = r;
    q->devices += r.devices;
    return ST_OK;
}

static void repairs_pop(repairs *q)
{
    ASSERT(q->count > 0);
    q->devices -= q->heap[0].devices;
    const repair last = q->heap[--q->count];
    int64_t i = 0;
    for (int64_t child = 1; child < q->count; child = 2 * i + 1) {
        if (child + 1 < q->count && q->heap[child + 1].until_s < q->heap[child].until_s) child++;
        if (q->heap[child].until_s >= last.until_s) break;
        q->heap[i] = q->heap[child];
        i = child;
    }
    if (q->count > 0) q->heap[i] = last;
}

static void repairs_until(repairs *q, double now_s)
{
    while (q->count > 0 && q->heap[0].until_s <= now_s) repairs_pop(q);
}

// ---- one sample --------------------------------------------------------------------------------

// Draws the seconds to the next interruption and its kind.
static double draw(sample *s, int32_t *event)
{
    const uint32_t counter[4] = {(uint32_t)s->drawn, (uint32_t)(s->drawn >> 32), s->number,
                                 0x666c6565u}; // "flee": a key that no other random stream uses
    const uint32_t key[2] = {(uint32_t)s->in->seed, (uint32_t)(s->in->seed >> 32)};
    const philox_words w = philox4x32_10(counter, key);
    s->drawn++;
    const double share = (double)w.w[2] * 0x1p-32;
    *event = 0;
    while (*event < s->in->event_count - 1 && share >= s->before[*event]) *event += 1;
    // u lies in (0, 1], so the logarithm is finite.
    const double u = ((double)w.w[0] * 0x1p-32 + (double)(w.w[1] >> 11) * 0x1p-53) + 0x1p-54;
    return -log(u) / s->rate_s;
}

// Handles a failure at wall_s: takes devices out and waits until enough are left.
static status take_out(sample *s, int32_t event)
{
    const sim_long_run_event *e = &s->in->events[event];
    s->failures++;
    s->by_event[event]++;
    repairs_until(&s->out, s->wall_s);
    if (e->devices == 0 || e->repair_h <= 0.0) return ST_OK;
    const double repair_s = e->repair_h * 3600.0;
    TRY(repairs_push(&s->out, (repair){s->wall_s + repair_s, e->devices, e->is_unpaid}));
    if (e->is_unpaid) s->unpaid_s += repair_s * (double)e->devices;
    s->most_out = max_i64(s->most_out, s->out.devices);
    while (s->in->spares >= 0 && s->out.devices > s->in->spares) {
        const double back_s = s->out.heap[0].until_s;
        s->wait_s += back_s - s->wall_s;
        s->wall_s = back_s;
        repairs_until(&s->out, back_s);
    }
    return ST_OK;
}

// Restarts the job; the restart may fail as well.
static status stand_up(sample *s)
{
    for (;;) {
        int32_t event = 0;
        const double next_s = s->rate_s > 0.0 ? draw(s, &event) : HUGE_VAL;
        const double took_s = fmin(next_s, s->in->restart_s);
        s->wall_s += took_s;
        s->restart_s += took_s;
        if (next_s >= s->in->restart_s) return ST_OK;
        TRY(take_out(s, event));
    }
}

// A job with enough warning saves first and loses no work.
static bool is_warned(const sim_long_run_input *in, const sim_long_run_event *e)
{
    return e->warning_s >= in->write_s && e->warning_s > 0.0;
}

// Works from a checkpoint to the next interruption or to the end of the run.
static status go_on(sample *s, double work_s, bool *ended)
{
    const double write_s = s->in->write_s, cycle_s = s->interval_s + write_s;
    const double left_s = work_s - s->saved_s;
    const double saves =
        fmax(ceil(left_s / s->interval_s * (1.0 - 1e-12)), 1.0); // counts the last interval too
    const double end_s = left_s + saves * write_s;
    int32_t event = 0;
    const double next_s = s->rate_s > 0.0 ? draw(s, &event) : HUGE_VAL;
    *ended = next_s >= end_s;
    if (*ended) {
        s->wall_s += end_s;
        s->save_s += saves * write_s;
        s->saved_s = work_s;
        return ST_OK;
    }
    const double whole = fmin(floor(next_s / cycle_s), saves - 1.0);
    double lost_s = next_s - whole * cycle_s;
    s->saved_s += whole * s->interval_s;
    s->save_s += whole * write_s;
    const double warned_s = lost_s - write_s;
    if (is_warned(s->in, &s->in->events[event]) && warned_s > 0.0) {
        const double kept_s = fmin(fmin(warned_s, s->interval_s), work_s - s->saved_s);
        s->saved_s += kept_s;
        s->save_s += write_s;
        lost_s -= kept_s + write_s;
    }
    s->rework_s += lost_s;
    s->wall_s += next_s;
    TRY(take_out(s, event));
    return stand_up(s);
}

static status sample_simulate(sample *s, double work_s)
{
    bool ended = false;
    while (!ended) TRY(go_on(s, work_s, &ended));
    for (int64_t i = 0; i < s->out.count; i++) { // devices that return after the end
        const repair *r = &s->out.heap[i];
        if (r->is_unpaid) s->unpaid_s -= fmax(r->until_s - s->wall_s, 0.0) * (double)r->devices;
    }
    return ST_OK;
}

// ---- all samples -------------------------------------------------------------------------------

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static sim_percentiles percentiles(double *values, int64_t count)
{
    sim_percentiles p = {0};
    qsort(values, (size_t)count, sizeof(double), by_value);
    for (int64_t i = 0; i < count; i++) p.mean += values[i] / (double)count;
    const double shares[] = {0.1, 0.5, 0.9};
    double *const out[] = {&p.p10, &p.p50, &p.p90};
    for (int i = 0; i < 3; i++) { // interpolates linearly between the two nearest
        const double at = shares[i] * (double)(count - 1);
        const int64_t below = (int64_t)at, above = min_i64(below + 1, count - 1);
        *out[i] = values[below] + (at - (double)below) * (values[above] - values[below]);
    }
    return p;
}

// Estimates the share of time kept before any sample is taken: unannounced interruptions by the
// closed form, announced ones as a save and a restart.
static double kept_guess(const sim_long_run_input *in, double interval_s)
{
    double unannounced = 0.0, announced = 0.0; // per second
    for (int32_t e = 0; e < in->event_count; e++) {
        *(is_warned(in, &in->events[e]) ? &announced : &unannounced) +=
            in->events[e].rate_h / 3600.0;
    }
    const double kept = unannounced > 0.0 ? cost_kept_share(1.0 / unannounced, in->write_s,
                                                            in->restart_s, interval_s)
                                          : interval_s / (interval_s + in->write_s);
    return kept * exp(-announced * (in->restart_s + in->write_s)) / in->slowdown;
}

// Rounds the wanted interval to whole steps and returns the wall time at work of one interval.
static double interval_choose(const sim_long_run_input *in, double work_s, bool *raised)
{
    double unannounced = 0.0;
    for (int32_t e = 0; e < in->event_count; e++) {
        if (!is_warned(in, &in->events[e])) unannounced += in->events[e].rate_h / 3600.0;
    }
    const double step_s = in->step_s * in->slowdown;
    double wanted_s = in->interval_s;
    if (wanted_s <= 0.0) {
        wanted_s = unannounced > 0.0 ? cost_interval_best(1.0 / unannounced, in->write_s) : work_s;
    }
    const double least_s = in->least_interval_s - in->write_s;
    *raised = in->interval_s > 0.0 && in->interval_s < least_s;
    if (wanted_s < least_s) return fmin(ceil(least_s / step_s) * step_s, work_s);
    return fmin(fmax(round(wanted_s / step_s), 1.0) * step_s, work_s);
}

static status ends_check(const sim_long_run_input *in, const sim_long_run_result *r, double work_s,
                         double *events)
{
    *events = 0.0;
    if (r->mtbf_s == 0.0) return ST_OK;
    *events = work_s / (fmax(r->kept, 1e-300) * r->mtbf_s);
    if (*events <= EVENTS_ONE) return ST_OK;
    return fail(
        ST_CONFIG_CONFLICT,
        "the run makes too little progress to end: it is interrupted every %.4g s, a "
        "restart takes %.4g s and a checkpoint %.4g s every %.4g s, so it keeps %.2g of its "
        "time; take fewer devices, a shorter checkpoint.restart_s or checkpoint.interval_s",
        r->mtbf_s, in->restart_s, in->write_s, r->interval_s, r->kept);
}

// Indices of the samples' values; each list has `count` entries.
enum { V_GOODPUT, V_DAYS, V_HOURS, V_SPARE_HOURS, V_COST, V_ENERGY, V_FAILURES, V_SPARES, V_COUNT };

// Adds a sample's bill to the mean; returns its sum. `spare_h`: paid device-hours of spares, which
// are negative where a provider took more devices back than are held as spares.
static double bill_add(const sim_long_run_input *in, const sample *s, double spare_h, double kwh,
                       sim_long_run_result *r)
{
    const double hours = s->wall_s / 3600.0, n = (double)in->devices;
    const double idle_h = (s->restart_s + s->wait_s) / 3600.0;
    const sim_bill b = {.work = n * (hours - idle_h) * in->device_usd_h,
                        .idle = n * idle_h * in->device_usd_h,
                        .spares = spare_h * in->device_usd_h,
                        .network = (n * hours + spare_h) * in->network_usd_h + in->egress_usd,
                        .storage = hours * in->storage_usd_h,
                        .energy = kwh * in->kwh_usd};
    const double share = 1.0 / (double)r->samples;
    r->bill.work += b.work * share;
    r->bill.idle += b.idle * share;
    r->bill.spares += b.spares * share;
    r->bill.network += b.network * share;
    r->bill.storage += b.storage * share;
    r->bill.energy += b.energy * share;
    return b.work + b.idle + b.spares + b.network + b.storage + b.energy;
}

static void note_sample(const sim_long_run_input *in, const sample *s, double work_s, int64_t i,
                        double *const values[V_COUNT], sim_long_run_result *r)
{
    const double hours = s->wall_s / 3600.0, n = (double)in->devices;
    // Found or given, spares are held from the first hour to the last.
    const double spares = (double)(in->spares >= 0 ? in->spares : s->most_out);
    const double spare_h = spares * hours - s->unpaid_s / 3600.0;
    const double idle_h = (s->restart_s + s->wait_s) / 3600.0;
    values[V_GOODPUT][i] = in->step_s * (double)in->steps / s->wall_s;
    values[V_DAYS][i] = hours / 24.0;
    values[V_HOURS][i] = hours * n;
    values[V_SPARE_HOURS][i] = spare_h;
    values[V_ENERGY][i] = (n * ((hours - idle_h) * in->busy_watts + idle_h * in->idle_watts) +
                           spares * hours * in->idle_watts) /
                          1000.0;
    values[V_COST][i] = bill_add(in, s, spare_h, values[V_ENERGY][i], r);
    values[V_FAILURES][i] = (double)s->failures;
    values[V_SPARES][i] = (double)s->most_out;
    const double share = 1.0 / (s->wall_s * (double)r->samples);
    r->share.work += work_s / in->slowdown * share;
    r->share.slow += (work_s - work_s / in->slowdown) * share;
    r->share.rework += s->rework_s * share;
    r->share.save += s->save_s * share;
    r->share.restart += s->restart_s * share;
    r->share.wait += s->wait_s * share;
    for (int32_t e = 0; e < in->event_count; e++) {
        r->by_event[e] += (double)s->by_event[e] / (double)r->samples;
    }
}

static status input_check(const sim_long_run_input *in)
{
    if (in->step_s <= 0.0 || !isfinite(in->step_s) || in->steps < 1 || in->devices < 1) {
        return fail(ST_CONFIG_RANGE,
                    "a run of %lld steps of %g s on %lld devices: all must be positive",
                    (long long)in->steps, in->step_s, (long long)in->devices);
    }
    ASSERT(in->event_count >= 0 && in->event_count <= SIM_LONG_RUN_EVENTS);
    ASSERT(in->slowdown >= 1.0 && in->write_s >= 0.0 && in->restart_s >= 0.0);
    for (int32_t e = 0; e < in->event_count && in->spares >= 0; e++) {
        if (in->events[e].devices <= in->devices + in->spares) continue;
        return fail(ST_CONFIG_CONFLICT,
                    "one \"%s\" takes out %lld devices, and there are only %lld",
                    in->events[e].name, (long long)in->events[e].devices,
                    (long long)(in->devices + in->spares));
    }
    return ST_OK;
}

status sim_long_run_simulate(arena *a, const sim_long_run_input *in, sim_long_run_result *out)
{
    sim_long_run_result r = {.never_lacks = -1.0};
    sample begin = {.in = in};
    double *values[V_COUNT], events = 0.0, mean_out = 0.0;
    TRY(input_check(in));
    for (int32_t e = 0; e < in->event_count; e++) begin.rate_s += in->events[e].rate_h / 3600.0;
    for (int32_t e = 0; e < in->event_count && begin.rate_s > 0.0; e++) {
        begin.before[e] =
            (e > 0 ? begin.before[e - 1] : 0.0) + in->events[e].rate_h / 3600.0 / begin.rate_s;
        if (in->events[e].devices > 0) mean_out += in->events[e].rate_h * in->events[e].repair_h;
    }
    const double work_s = in->step_s * in->slowdown * (double)in->steps;
    r.has_price = sim_long_run_has_price(in);
    r.mtbf_s = begin.rate_s > 0.0 ? 1.0 / begin.rate_s : 0.0;
    begin.interval_s = r.interval_s = interval_choose(in, work_s, &r.interval_raised);
    const double cycle_s = r.interval_s + in->write_s;
    r.store_bytes_s = cycle_s > 0.0 ? in->checkpoint_bytes / cycle_s : 0.0;
    r.kept = kept_guess(in, r.interval_s);
    TRY(ends_check(in, &r, work_s, &events));
    if (in->spares >= 0 && in->event_count > 0) {
        int64_t each = 1; // of the smallest kind; larger ones are rare
        for (int32_t e = in->event_count - 1; e >= 0; e--) {
            if (in->events[e].devices > 0) each = in->events[e].devices;
        }
        r.never_lacks = cost_poisson_below(mean_out, in->spares / each);
    }
    r.samples = in->samples > 0 ? in->samples : SAMPLES;
    r.samples = max_i64(min_i64(r.samples, (int64_t)(EVENTS_ALL / (events + 1.0))), SAMPLES_LEAST);
    for (int v = 0; v < V_COUNT; v++) TRY(arena_new(a, r.samples, &values[v]));
    begin.out.a = a;
    for (int64_t i = 0; i < r.samples; i++) {
        sample s = begin;
        s.number = (uint32_t)i;
        TRY(sample_simulate(&s, work_s));
        note_sample(in, &s, work_s, i, values, &r);
        begin.out = s.out; // reuses its memory for the next sample
        begin.out.count = begin.out.devices = 0;
    }
    sim_percentiles *const to[V_COUNT] = {&r.goodput,     &r.days,     &r.device_hours,
                                          &r.spare_hours, &r.cost_usd, &r.energy_kwh,
                                          &r.failures,    &r.spares};
    for (int v = 0; v < V_COUNT; v++) *to[v] = percentiles(values[v], r.samples);
    *out = r;
    return ST_OK;
}
