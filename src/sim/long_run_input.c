// Makes the input of a long-run simulation from the cluster's figures and from the keys of the run
// that override them.
#include "cost/failure.h"
#include "sim/long_run.h"

#include <math.h>

// Large clouds announce the loss of a spot node two minutes before.
static const double spot_warning_s = 120.0;

static void event_add(sim_long_run_input *in, const char *name, double rate_h, int64_t devices,
                      double repair_h)
{
    if (!(rate_h > 0.0)) return;
    ASSERT(in->event_count < SIM_LONG_RUN_EVENTS);
    in->events[in->event_count++] = (sim_long_run_event){
        .name = name, .rate_h = rate_h, .devices = devices, .repair_h = repair_h};
}

// A cause that a restart on the same machines repairs takes no machine out.
static bool takes_machine(cluster_cause cause)
{
    return cause != CAUSE_SOFTWARE && cause != CAUSE_STORAGE && cause != CAUSE_FACILITY;
}

static void events_make(const run_config *r, const cluster *c, double n, sim_long_run_input *in)
{
    static const char *const names[CAUSE_COUNT] = {
        [CAUSE_DEVICE] = "device",   [CAUSE_DEVICE_MEMORY] = "device memory",
        [CAUSE_HOST] = "host",       [CAUSE_NETWORK] = "network",
        [CAUSE_STORAGE] = "storage", [CAUSE_SOFTWARE] = "software",
        [CAUSE_FACILITY] = "power",  [CAUSE_OTHER] = "other"};
    const cluster_failures *f = &c->failures;
    const double own = r->fleet.mtbf_device_h, mtbf = own > 0.0 ? own : f->mtbf_device_h;
    const double repair = r->fleet.repair_h > 0.0 ? r->fleet.repair_h : f->repair_h;
    const int64_t node = min_i64(max_i64(c->node.devices, 1), in->devices);
    double shares = 0.0;
    for (int i = 0; i < CAUSE_COUNT; i++) shares += f->share[i];
    for (int i = 0; i < CAUSE_COUNT && mtbf > 0.0; i++) {
        const double share = shares > 0.0 ? f->share[i] / shares : (double)(i == CAUSE_DEVICE);
        event_add(in, names[i], n / mtbf * share, takes_machine((cluster_cause)i) ? node : 0,
                  repair);
    }
    if (!(own > 0.0)) { // otherwise the user's figure covers all causes
        const int64_t group = min_i64(f->switch_devices, in->devices);
        if (f->mtbf_node_h > 0.0) {
            event_add(in, "node", n / (double)node / f->mtbf_node_h, node, repair);
        }
        if (f->mtbf_switch_h > 0.0 && group > 0) {
            event_add(in, "switch", n / (double)group / f->mtbf_switch_h, group, repair);
        }
    }
    const double taken = c->prices.spot_interruptions_h;
    if (r->price.kind == RUN_PRICE_SPOT && taken > 0.0) {
        event_add(in, "spot", n / (double)node * taken, node, repair);
        in->events[in->event_count - 1].warning_s = spot_warning_s;
        in->events[in->event_count - 1].is_unpaid = true;
    }
}

// A synchronous step is as slow as its slowest device.
static double slowdown_of(const cluster_failures *f, double n, double nodes)
{
    const double jitter = 1.0 + f->jitter * cost_normal_slowest(n);
    if (!(f->slow_share > 0.0) || !(f->slow_speed > 0.0) || f->slow_speed >= 1.0) return jitter;
    const double some =
        1.0 - pow(1.0 - fmin(f->slow_share, 1.0), nodes); // probability that at least one is slow
    return fmax(jitter, 1.0) * (1.0 + some * (1.0 / f->slow_speed - 1.0));
}

// Between two checkpoints at least: more of them than one a minute help no run.
static const double interval_floor_s = 60.0;

// Bytes per second of all nodes to or from the file system; 0: unknown.
static double storage_of(double node_bytes_s, double all_bytes_s, double nodes)
{
    const double nodes_bytes_s = node_bytes_s * nodes;
    if (!(nodes_bytes_s > 0.0)) return all_bytes_s;
    return all_bytes_s > 0.0 ? fmin(nodes_bytes_s, all_bytes_s) : nodes_bytes_s;
}

static void checkpoints_make(const run_config *r, const cluster *c, const sim_long_run_step *step,
                             double nodes, sim_long_run_input *in)
{
    const double write_s =
        storage_of(c->node.storage_write_bytes_s, c->storage_write_bytes_s, nodes);
    const double read_s = storage_of(c->node.storage_read_bytes_s, c->storage_read_bytes_s, nodes);
    const double to_disk_s = write_s > 0.0 ? step->state_bytes / write_s : 0.0;
    const double of_one = step->state_bytes / (double)step->devices;
    const double to_host_s = c->node.host_bytes_s > 0.0 ? of_one / c->node.host_bytes_s : 0.0;
    in->write_s = r->checkpoint.async ? to_host_s : to_disk_s;
    if (r->checkpoint.write_s > 0.0) in->write_s = r->checkpoint.write_s;
    // The store must have taken one before the next begins.
    in->least_interval_s = fmax(interval_floor_s, to_disk_s);
    in->checkpoint_bytes = step->state_bytes;
    in->store_bytes_s = write_s;
    in->restart_s = c->failures.detect_s + c->failures.restart_s +
                    (read_s > 0.0 ? step->state_bytes / read_s : 0.0);
    if (r->checkpoint.restart_s > 0.0) in->restart_s = r->checkpoint.restart_s;
    in->interval_s = r->checkpoint.interval_s;
}

static run_price kind_of(const run_config *r, const cluster_prices *p)
{
    if (r->price.kind != RUN_PRICE_AUTO) return (run_price)r->price.kind;
    if (p->on_demand_usd_h > 0.0) return RUN_PRICE_ON_DEMAND;
    return p->reserved_usd_h > 0.0 ? RUN_PRICE_RESERVED : RUN_PRICE_OWNED;
}

static void prices_make(const run_config *r, const cluster *c, sim_long_run_input *in)
{
    const cluster_prices *p = &c->prices;
    const run_price kind = kind_of(r, p);
    const struct {
        const char *name;
        double usd_h, committed_h;
    } kinds[] = {
        [RUN_PRICE_ON_DEMAND] = {"on demand", p->on_demand_usd_h, 0.0},
        [RUN_PRICE_RESERVED] = {"reserved", p->reserved_usd_h, 0.0},
        [RUN_PRICE_OWNED] = {"owned", p->owned_usd_h, 0.0},
        [RUN_PRICE_SPOT] = {"spot", p->spot_usd_h, 0.0},
        [RUN_PRICE_RESERVED_1Y] = {"reserved for a year", p->reserved_1y_usd_h, 8760.0},
        [RUN_PRICE_RESERVED_3Y] = {"reserved for three years", p->reserved_3y_usd_h, 26280.0}};
    in->device_usd_h = kinds[kind].usd_h;
    in->price_kind = kinds[kind].name;
    in->committed_h = kinds[kind].committed_h;
    in->kwh_usd = kind == RUN_PRICE_OWNED ? p->kwh_usd : 0.0;
    const bool is_listed = p->list != NULL && *p->list != '\0' && kind != RUN_PRICE_OWNED;
    in->price_list = is_listed ? p->list : NULL;
    in->price_date = is_listed ? p->date : NULL;
    if (r->price.device_hour > 0.0) {
        in->price_list = in->price_date = NULL;
        in->device_usd_h = r->price.device_hour;
        in->price_kind = "given";
        in->committed_h = 0.0;
        in->kwh_usd = 0.0;
    }
    if (r->price.kwh > 0.0) in->kwh_usd = r->price.kwh;
    const double hours_of_month = 730.0, kept = (double)max_i64(r->checkpoint.keep, 1);
    in->network_usd_h = p->network_usd_h;
    in->egress_usd = p->egress_usd_gb * in->checkpoint_bytes * 1e-9;
    in->storage_usd_h =
        p->storage_usd_gb_month * in->checkpoint_bytes * 1e-9 * kept / hours_of_month;
    const double node = c->node.devices > 0 ? c->node.watts / (double)c->node.devices : 0.0;
    const double hall = fmax(c->pue, 1.0);
    in->busy_watts = (c->device.watts + node) * hall;
    in->idle_watts =
        (c->device.idle_watts > 0.0 ? c->device.idle_watts : c->device.watts) * hall + node * hall;
}

int64_t sim_long_run_steps(const run_config *r)
{
    const double batch = (double)(run_config_batch_max(r) * r->train.seq);
    return r->train.tokens > 0 ? (int64_t)ceil((double)r->train.tokens / batch) : r->train.steps;
}

bool sim_long_run_has_price(const sim_long_run_input *in)
{
    return in->device_usd_h > 0.0 || in->kwh_usd > 0.0;
}

void sim_long_run_input_make(const run_config *r, const cluster *c, const sim_long_run_step *step,
                             sim_long_run_input *out)
{
    const double n = (double)step->devices;
    const double nodes = ceil(n / (double)max_i64(c->node.devices, 1));
    sim_long_run_input in = {.step_s = step->step_s,
                             .steps = sim_long_run_steps(r),
                             .devices = step->devices,
                             .spares = r->fleet.spares,
                             .seed = (uint64_t)r->train.seed};
    in.slowdown = slowdown_of(&c->failures, n, nodes);
    events_make(r, c, n, &in);
    checkpoints_make(r, c, step, nodes, &in);
    prices_make(r, c, &in);
    *out = in;
}
