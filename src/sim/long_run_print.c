// Prints the result of a long-run simulation as JSON and as lines.
#include "sim/long_run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

status sim_long_run_json(const sim_long_run_result *r, text *out)
{
    const sim_percentiles interval = {r->interval_s, r->interval_s, r->interval_s, r->interval_s};
    const struct {
        const char *name;
        const sim_percentiles *p;
    } rows[] = {{"days", &r->days},
                {"gpu_hours", &r->device_hours},
                {"spare_hours", &r->spare_hours},
                {"cost_usd", &r->cost_usd},
                {"energy_kwh", &r->energy_kwh},
                {"failures", &r->failures},
                {"goodput", &r->goodput},
                {"checkpoint_interval_s", &interval},
                {"spares", &r->spares}};
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        if (rows[i].p == &r->cost_usd && !r->has_price) {
            TRY(text_add(out, ", \"cost_usd\": {\"p10\": null, \"p50\": null, \"p90\": null}"));
            continue;
        }
        TRY(text_add(out, "%s\"%s\": {\"p10\": %.10g, \"p50\": %.10g, \"p90\": %.10g}",
                     i == 0 ? "" : ", ", rows[i].name, rows[i].p->p10, rows[i].p->p50,
                     rows[i].p->p90));
    }
    TRY(text_add(out,
                 ", \"bill_usd\": {\"work\": %.10g, \"idle\": %.10g, \"spares\": %.10g, "
                 "\"network\": %.10g, \"storage\": %.10g, \"energy\": %.10g}",
                 r->bill.work, r->bill.idle, r->bill.spares, r->bill.network, r->bill.storage,
                 r->bill.energy));
    return text_add(out, ", \"store_bytes_s\": %.10g", r->store_bytes_s);
}

// Formats a number as "1,234,567" or "12.3".
static const char *number(double value, char buffer[32])
{
    if (fabs(value) >= 1000.0 && fabs(value) < 1e5) {
        snprintf(buffer, 32, "%.0f", value);
        return buffer;
    }
    if (fabs(value) < 1000.0) {
        snprintf(buffer, 32, fabs(value) < 10.0 ? "%.2f" : "%.1f", value);
        return buffer;
    }
    return text_count_human(value, buffer);
}

static status line(text *out, const char *name, const sim_percentiles *p, const char *before,
                   const char *after)
{
    char a[32], b[32], c[32];
    return text_add(out, "%-9s %s%s%s (%s to %s)\n", name, before, number(p->p50, a), after,
                    number(p->p10, b), number(p->p90, c));
}

static status causes(const sim_long_run_input *in, const sim_long_run_result *r, text *out)
{
    double all = 0.0;
    const char *between = "          ";
    for (int32_t i = 0; i < in->event_count; i++) all += r->by_event[i];
    if (!(all > 0.0)) return ST_OK;
    int shown = 0;
    for (int32_t i = 0; i < in->event_count; i++) {
        const double share = 100.0 * r->by_event[i] / all;
        if (share < 0.5) continue;
        TRY(text_add(out, "%s%s %.0f%%", between, in->events[i].name, share));
        between = ++shown % 5 == 0 ? "\n          " : " · ";
    }
    return text_add(out, "\n");
}

// The checkpoint interval, and its load on the store.
static status saving(const sim_long_run_input *in, const sim_long_run_result *r, text *out)
{
    char a[32], b[32], c[32];
    TRY(text_add(out, "saving    every %s, each takes %s; a restart takes %s\n",
                 text_duration_human(r->interval_s, a), text_duration_human(in->write_s, b),
                 text_duration_human(in->restart_s, c)));
    if (r->interval_raised) {
        TRY(text_add(out, "          the interval asked for is shorter than the store allows\n"));
    }
    if (!(in->checkpoint_bytes > 0.0)) return ST_OK;
    TRY(text_add(out, "storage   %s per checkpoint, %s/s in the mean",
                 text_bytes_human((int64_t)in->checkpoint_bytes, a),
                 text_bytes_human((int64_t)r->store_bytes_s, b)));
    if (!(in->store_bytes_s > 0.0)) return text_add(out, "\n");
    return text_add(out, ",\n          %.2g%% of the %s/s that it takes\n",
                    100.0 * r->store_bytes_s / in->store_bytes_s,
                    text_bytes_human((int64_t)in->store_bytes_s, c));
}

// Parts of the mean cost, the largest of which people ask about first.
static status bill(const sim_long_run_result *r, text *out)
{
    const struct {
        const char *name;
        double usd;
    } rows[] = {{"work", r->bill.work},       {"idle time", r->bill.idle},
                {"spares", r->bill.spares},   {"network", r->bill.network},
                {"storage", r->bill.storage}, {"energy", r->bill.energy}};
    char a[32];
    TRY(text_add(out, "bill     "));
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        TRY(text_add(out, "%s%s $%s",
                     i == 0   ? " "
                     : i == 4 ? ",\n          "
                              : ", ",
                     rows[i].name, number(rows[i].usd, a)));
    }
    return text_add(out, "\n");
}

// The price of a device, with its origin.
static status price(const sim_long_run_input *in, text *out)
{
    TRY(text_add(out, "price     $%.2f per device and hour, %s%s\n", in->device_usd_h,
                 in->price_kind, in->kwh_usd > 0.0 ? ", and energy" : ", energy included"));
    if (in->committed_h > 0.0) {
        char a[32];
        const double usd = (double)in->devices * in->committed_h * in->device_usd_h;
        TRY(text_add(out, "          the commitment for all devices is $%s, used or not\n",
                     number(usd, a)));
    }
    if (strcmp(in->price_kind, "given") == 0) return ST_OK;
    if (in->price_list == NULL) {
        return text_add(out, "          of the cluster's entry; price.kind=spot and\n"
                             "          cluster.prices.list=aws.us-east-1 take another\n"
                             "          (trireme catalog prices)\n");
    }
    return text_add(out, "          of %s, read on %s\n", in->price_list, in->price_date);
}

status sim_long_run_print(const sim_long_run_input *in, const sim_long_run_result *r, text *out)
{
    char a[32];
    TRY(line(out, "time", &r->days, "", " days"));
    TRY(text_add(out, "goodput   %.1f%% (%.1f to %.1f)\n", 100.0 * r->goodput.p50,
                 100.0 * r->goodput.p10, 100.0 * r->goodput.p90));
    TRY(text_add(out,
                 "          lost to: repeated work %.1f%% · restarts %.1f%% · saving %.1f%%\n"
                 "          slow devices %.1f%% · waiting for spares %.1f%%\n",
                 100.0 * r->share.rework, 100.0 * r->share.restart, 100.0 * r->share.save,
                 100.0 * r->share.slow, 100.0 * r->share.wait));
    if (r->mtbf_s > 0.0) {
        TRY(text_add(out, "failures  %.0f (%.0f to %.0f), one every %s\n", r->failures.p50,
                     r->failures.p10, r->failures.p90, text_duration_human(r->mtbf_s, a)));
        TRY(causes(in, r, out));
        TRY(saving(in, r, out));
        TRY(text_add(out, "spares    %.0f devices in repair at once (%.0f to %.0f)\n",
                     r->spares.p50, r->spares.p10, r->spares.p90));
    } else {
        TRY(text_add(out, "failures  none: the rate of this cluster is not known\n"));
    }
    TRY(line(out, "devices", &r->device_hours, "", " device-hours"));
    if (in->busy_watts > 0.0) TRY(line(out, "energy", &r->energy_kwh, "", " kWh"));
    if (r->has_price) {
        TRY(line(out, "cost", &r->cost_usd, "$", ""));
        TRY(bill(r, out));
        TRY(price(in, out));
    } else {
        TRY(text_add(out, "cost      unknown: no price %s is known; give price.device_hour=USD\n",
                     in->price_kind));
    }
    return text_add(out, "          median (and 10th to 90th percentile) of %lld runs\n",
                    (long long)r->samples);
}
