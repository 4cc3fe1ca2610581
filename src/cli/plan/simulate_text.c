// Prints a simulated step for people, in at most 80 columns: the short answer first, then its
// parts.
#include "cli/explain/explain.h"
#include "cli/plan/simulate.h"

#include <stdio.h>

enum { STAGES_SHOWN = 16 };

static status model_lines(const predict_step *x, text *t)
{
    const predict_setup *s = x->of;
    const run_config *r = s->r;
    char count[32], bytes[32], batch[32], seq[32];
    text layout = {.a = t->a};
    TRY(text_add(t, "model     %.40s  %lld layer%s  dim %lld  heads %lld/%lld\n", s->name,
                 (long long)s->spec.layers, text_plural(s->spec.layers, "s"),
                 (long long)s->spec.dim, (long long)s->spec.heads, (long long)s->spec.kv_heads));
    TRY(text_add(t, "          %s parameters, %.4g GFLOP per token (%s)\n",
                 text_count_human((double)x->parameters, count), x->model_flops * 1e-9,
                 s->rule->name));
    TRY(text_add(t, "cluster   %s, %s device%s with %s usable   profile %s\n", s->machine.name,
                 text_grouped(x->devices, count), text_plural(x->devices, "s"),
                 text_bytes_human(x->usable_bytes, bytes), s->profile.name));
    TRY(run_config_print_layout(r, &layout));
    TRY(text_add(t, "layout    %s\n", layout.bytes));
    return text_add(t, "batch     %s x %s tokens, %lld micro-batch%s of %lld on each rank\n",
                    text_grouped(run_config_batch_max(r), batch), text_grouped(r->train.seq, seq),
                    (long long)x->microbatches, text_plural(x->microbatches, "es"),
                    (long long)x->micro_batch);
}

static status step_lines(const predict_step *x, text *t)
{
    char step[32], rate[32];
    if (!x->fits) {
        return text_add(t, "step      not printed: the run does not fit, so it has no speed\n");
    }
    TRY(text_add(t, "step      %s   %s tok/s   %.4g TFLOP/s per device   MFU %.1f%%   HFU %.1f%%\n",
                 text_duration_human(x->step_s, step), text_count_human(x->tokens_per_s, rate),
                 x->flops_per_device * 1e-12, 100.0 * x->mfu, 100.0 * x->hfu));
    TRY(text_add(t, "          compute %.1f%%  bubble %.1f%%", 100.0 * x->compute,
                 100.0 * x->bubble));
    for (int k = 0; k < TRAFFIC_COUNT; k++) {
        if (x->exposed[k] < 0.0005) continue;
        TRY(text_add(t, "  %s %.1f%%", traffic_name((traffic)k), 100.0 * x->exposed[k]));
    }
    if (x->data >= 0.0005) TRY(text_add(t, "  data %.1f%%", 100.0 * x->data));
    if (x->host >= 0.0005) TRY(text_add(t, "  host %.1f%%", 100.0 * x->host));
    return text_add(t, "\n");
}

// Waits of the first rank, whose metrics a run writes.
static status turns_lines(arena *a, const predict_step *x, text *t)
{
    const cluster_node *node = &x->of->machine.node;
    char step[32];
    sim_turns turns;
    if (!x->fits) return ST_OK;
    TRY(predict_step_turns(a, x, &turns));
    if (turns.count == 0) return ST_OK;
    const sim_turn *first = &turns.ranks[0];
    const double whole = (double)first->length;
    TRY(text_add(t, "turns     %d rank%s", turns.count, text_plural(turns.count, "s")));
    if (node->other_threads > 0) {
        TRY(text_add(t, " and %d thread%s of other programs", node->other_threads,
                     text_plural(node->other_threads, "s")));
    }
    TRY(text_add(t, " share %d cores: step %s; rank 0 waits: cores %.1f%%", node->cpu_cores,
                 text_duration_human((double)turns.step_ns * 1e-9, step),
                 100.0 * (double)first->cores / whole));
    for (int k = 0; k < TRAFFIC_COUNT; k++) {
        const double share = (double)first->waits[k] / whole;
        if (share < 0.0005) continue;
        TRY(text_add(t, "  %s %.1f%%", traffic_name((traffic)k), 100.0 * share));
    }
    return text_add(t, "\n");
}

static status memory_lines(const predict_step *x, text *t)
{
    char peak[32], other[32];
    TRY(text_add(t, "memory    %s on the fullest rank (stage %d): ",
                 text_bytes_human(x->peak_bytes, peak), x->fullest));
    const int64_t over = x->peak_bytes - x->usable_bytes;
    TRY(text_add(t, x->fits ? "fits, %s left\n" : "does not fit, %s over\n",
                 text_bytes_human(over < 0 ? -over : over, other)));
    for (int k = 0; k < PLAN_BYTES_COUNT; k++) {
        TRY(text_add(t, "%s%s %s", k % 3 == 0 ? "          " : "   ",
                     plan_bytes_name((plan_kind_of_bytes)k),
                     text_bytes_human(x->memory[k], other)));
        if (k % 3 == 2) TRY(text_add(t, "\n"));
    }
    return ST_OK;
}

static status stage_lines(const predict_step *x, text *t)
{
    char bytes[32];
    if (x->stages == 1) return ST_OK;
    TRY(text_add(t, "\nstage     first rank    memory   compute   bubble   exposed transfers\n"));
    for (int32_t i = 0; i < x->stages; i++) {
        if (x->stages > STAGES_SHOWN && i == STAGES_SHOWN / 2) {
            i = x->stages - STAGES_SHOWN / 2;
            TRY(text_add(t, "...\n"));
        }
        int64_t kinds[PLAN_BYTES_COUNT], exposed = 0;
        const sim_times *s = &x->step->times[i];
        const double whole = (double)s->length;
        for (int k = 0; k < TRAFFIC_COUNT; k++) exposed += s->exposed[k];
        TRY(text_add(t, "%5d%15lld%10s%9.1f%%%8.1f%%%12.1f%%\n", i,
                     (long long)(i * (x->devices / x->stages)),
                     text_bytes_human(predict_step_bytes(x, i, kinds), bytes),
                     100.0 * (double)s->compute / whole, 100.0 * (double)s->bubble / whole,
                     100.0 * (double)exposed / whole));
    }
    return ST_OK;
}

// Milliseconds with as many decimals as leave a blank before them.
static status time_cell(int64_t ns, int width, text *t)
{
    const double ms = (double)ns * 1e-6;
    const int decimals = ms < 1e5 ? 3 : ms < 1e7 ? 1 : 0;
    return text_add(t, " %*.*f", width - 1, decimals, ms);
}

static status layer_lines(arena *a, const predict_step *x, text *t)
{
    const cost_model prices = predict_prices(x->of);
    sim_layer rows[SIM_LAYERS];
    int32_t count = 0;
    TRY(sim_layers(a, &prices, &x->ranks[0], rows, &count));
    TRY(text_add(t, "\ntime of one layer for one micro-batch on one rank, ms\n"
                    "layer         how many   forward   recompute   backward   TFLOP/s\n"));
    for (int32_t i = 0; i < count; i++) {
        const sim_layer *l = &rows[i];
        const double all = (double)(l->forward_ns + l->recompute_ns + l->backward_ns);
        TRY(text_add(t, "%-14.14s%8d", l->name, l->count));
        TRY(time_cell(l->forward_ns, 10, t));
        TRY(time_cell(l->recompute_ns, 12, t));
        TRY(time_cell(l->backward_ns, 11, t));
        TRY(text_add(t, "%10.1f\n", all > 0.0 ? l->flops / all * 1e-3 : 0.0));
    }
    return ST_OK;
}

status simulate_print_text(arena *a, const predict_step *x, text *out)
{
    TRY(model_lines(x, out));
    TRY(step_lines(x, out));
    TRY(turns_lines(a, x, out));
    TRY(memory_lines(x, out));
    TRY(stage_lines(x, out));
    return layer_lines(a, x, out);
}
