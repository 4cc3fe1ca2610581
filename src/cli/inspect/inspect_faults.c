// `inspect RUN --faults`: the ranks that a run lost, and what each loss cost.
#include "cli/inspect/inspect.h"
#include "observe/observe.h"

#include <stdio.h>

enum { CELL_BYTES = 24 };

// A number that is not known is -1.
static const char *number_cell(int64_t value, char out[CELL_BYTES])
{
    if (value < 0) return "-";
    (void)snprintf(out, CELL_BYTES, "%lld", (long long)value);
    return out;
}

// An event that stopped no rank has no times.
static const char *time_cell(double ms, char out[CELL_BYTES])
{
    if (!(ms > 0.0)) return "-";
    (void)snprintf(out, CELL_BYTES, "%.1f ms", ms);
    return out;
}

static status print_json(cli_context *cli, const obs_losses *l)
{
    text t = {.a = cli->a};
    TRY(text_add(&t, "{\"steps\": %lld, \"steps_s\": %.3f, \"losses\": [", (long long)l->steps,
                 l->steps_s));
    for (int64_t i = 0; i < l->count; i++) {
        const obs_loss *x = &l->items[i];
        TRY(text_add(
            &t,
            "%s{\"event\": \"%s\", \"step\": %lld, \"epoch\": %lld, \"rank\": %lld, \"detect_ms\": %.1f, "
            "\"resume_ms\": %.1f, \"cause\": ",
            i > 0 ? ", " : "", x->event, (long long)x->step, (long long)x->epoch,
            (long long)x->rank, x->detect_ms, x->resume_ms));
        TRY(text_add_json(&t, x->cause));
        TRY(text_add(&t, "}"));
    }
    TRY(text_add(&t, "]"));
    if (l->has_goodput) {
        TRY(text_add(&t, ", \"time\": {"));
        TRY(obs_goodput_print_json(&l->goodput, &t));
        TRY(text_add(&t, "}"));
    }
    TRY(text_add(&t, "}\n"));
    cli_print_text(cli, &t);
    return ST_OK;
}

status inspect_faults(cli_context *cli, const char *run, bool is_json)
{
    char *path = NULL;
    obs_losses l;
    double lost_s = 0.0;
    TRY(path_join(cli->a, run, "metrics.jsonl", &path));
    TRY(obs_losses_read(cli->h, cli->a, path, 0.0, &l));
    if (is_json) return print_json(cli, &l);
    char time[512];
    obs_goodput_print(&l.goodput, time, (int64_t)sizeof(time));
    if (l.has_goodput) cli_print(cli, "%s\n", time);
    if (l.count == 0) {
        cli_print(cli, "no rank was lost, slow or joined in %lld step%s\n", (long long)l.steps,
                  text_plural(l.steps, "s"));
        return ST_OK;
    }
    cli_print(cli, "after step  event      epoch  rank   known in   resumed in  cause\n");
    for (int64_t i = 0; i < l.count; i++) {
        const obs_loss *x = &l.items[i];
        if (x->is_loss) lost_s += x->resume_ms / 1e3;
        char epoch[CELL_BYTES], rank[CELL_BYTES], known[CELL_BYTES], resumed[CELL_BYTES];
        cli_print(cli, "%10lld  %-9s  %5s  %4s  %9s  %11s  %s\n", (long long)x->step, x->event,
                  number_cell(x->epoch, epoch), number_cell(x->rank, rank),
                  time_cell(x->detect_ms, known), time_cell(x->resume_ms, resumed), x->cause);
    }
    cli_print(cli, "%lld loss%s took %.2f s; the %lld steps of the run took %.2f s\n",
              (long long)l.losses, text_plural(l.losses, "es"), lost_s, (long long)l.steps,
              l.steps_s);
    return ST_OK;
}
