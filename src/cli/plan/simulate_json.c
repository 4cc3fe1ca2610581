// Prints a simulated step as one JSON object. Names are fixed, because scripts read them.
#include "cli/plan/simulate.h"

static const char *precision_word(const run_config *r)
{
    static const char *const names[] = {"fp32", "bf16", "fp16", "fp8", "fp64"};
    return names[r->train.precision];
}

static const char *recompute_word(const run_config *r)
{
    static const char *const names[] = {"none", "selective", "full"};
    return names[r->train.recompute];
}

// Number of decoder layers that recompute.
static int64_t recompute_layers(const predict_setup *s)
{
    const run_config *r = s->r;
    if (r->train.recompute == RUN_RECOMPUTE_NONE) return 0;
    return r->train.recompute_layers > 0 ? r->train.recompute_layers : s->spec.layers;
}

static status layout_add(const run_config *r, text *t)
{
    const struct {
        const char *name;
        int64_t value;
    } sizes[] = {{"dp", r->layout.dp},
                 {"tp", r->layout.tp},
                 {"pp", r->layout.pp},
                 {"cp", r->layout.cp},
                 {"ep", r->layout.ep},
                 {"etp", run_config_mesh(r, 0).whole_experts ? 1 : r->layout.tp},
                 {"vpp", max_i64(r->layout.vpp, run_config_depth(r) / r->layout.pp)},
                 {"zero", r->layout.zero},
                 {"zero_group", r->layout.zero_group},
                 {"cp_heads", r->layout.cp_heads}};
    TRY(text_add(t, "\"layout\": {"));
    for (int64_t i = 0; i < COUNT_OF(sizes); i++) {
        TRY(text_add(t, "\"%s\": %lld, ", sizes[i].name, (long long)sizes[i].value));
    }
    TRY(text_add(t, "\"zero_sums\": \"%s\", ",
                 r->layout.zero_sums == RUN_SUMS_STEP ? "step" : "microbatch"));
    TRY(text_add(t, "\"sp\": %s, \"schedule\": ", r->layout.sp ? "true" : "false"));
    if (r->layout.pp == 1) return text_add(t, "null}");
    TRY(text_add_json(t, path_base_name(r->layout.schedule)));
    return text_add(t, "}");
}

static status memory_add(const int64_t bytes[PLAN_BYTES_COUNT], text *t)
{
    TRY(text_add(t, "\"memory\": {"));
    for (int k = 0; k < PLAN_BYTES_COUNT; k++) {
        TRY(text_add(t, "%s\"%s\": %lld", k == 0 ? "" : ", ",
                     plan_bytes_name((plan_kind_of_bytes)k), (long long)bytes[k]));
    }
    return text_add(t, "}");
}

static status figures_add(const predict_step *x, text *t)
{
    TRY(text_add(t, "\"step_s\": %.9f, \"tokens_per_s\": %.10g, \"tflops_per_device\": %.8g, ",
                 x->step_s, x->tokens_per_s, x->flops_per_device * 1e-12));
    TRY(text_add(t, "\"mfu\": %.8g, \"hfu\": %.8g, \"flops_convention\": ", x->mfu, x->hfu));
    TRY(text_add_json(t, x->of->rule->name));
    TRY(text_add(
        t, ", \"fits\": %s, \"peak_bytes\": %lld, \"usable_bytes\": %lld, \"memory_bytes\": %.0f, ",
        x->fits ? "true" : "false", (long long)x->peak_bytes, (long long)x->usable_bytes,
        x->of->machine.device.memory_bytes));
    TRY(text_add(t, "\"context_bytes\": %lld, \"lost_bytes\": %lld, \"lost_share\": %g, ",
                 (long long)x->of->profile.context_bytes, (long long)x->lost_bytes,
                 x->of->profile.slack));
    return memory_add(x->memory, t);
}

static status idle_add(const predict_step *x, const sim_long_run_result *run, text *t)
{
    double sync = x->host;
    for (int k = 0; k < TRAFFIC_COUNT; k++) sync += x->exposed[k];
    TRY(text_add(t, "\"bubble\": %.8g, \"exposed_comm_s\": %.9f, \"exposed_comm\": {", x->bubble,
                 x->exposed_s));
    for (int k = 0; k < TRAFFIC_COUNT; k++) {
        TRY(text_add(t, "%s\"%s\": %.9f", k == 0 ? "" : ", ", traffic_name((traffic)k),
                     x->exposed[k] * x->step_s));
    }
    return text_add(
        t, "}, \"idle\": {\"data\": %.8g, \"sync\": %.8g, \"bubble\": %.8g, \"checkpoint\": %.8g}",
        x->data, sync, x->bubble, run != NULL ? run->share.save : 0.0);
}

static status stages_add(const predict_step *x, text *t)
{
    const int64_t apart = x->devices / x->stages;
    TRY(text_add(t, "\"stages\": ["));
    for (int32_t i = 0; i < x->stages; i++) {
        int64_t bytes[PLAN_BYTES_COUNT];
        const int64_t all = predict_step_bytes(x, i, bytes);
        const sim_times *s = &x->step->times[i];
        const double whole = (double)s->length;
        TRY(text_add(t, "%s{\"first_rank\": %lld, \"ranks\": %lld, \"peak_bytes\": %lld, ",
                     i == 0 ? "" : ", ", (long long)(i * apart), (long long)apart, (long long)all));
        TRY(memory_add(bytes, t));
        TRY(text_add(t, ", \"compute\": %.8g, \"bubble\": %.8g}", (double)s->compute / whole,
                     (double)s->bubble / whole));
    }
    return text_add(t, "]");
}

static status layers_add(arena *a, const predict_step *x, text *t)
{
    const cost_model prices = predict_prices(x->of);
    sim_layer rows[SIM_LAYERS];
    int32_t count = 0;
    TRY(sim_layers(a, &prices, &x->ranks[0], rows, &count));
    TRY(text_add(t, "\"layers\": ["));
    for (int32_t i = 0; i < count; i++) {
        const sim_layer *l = &rows[i];
        TRY(text_add(t, "%s{\"name\": ", i == 0 ? "" : ", "));
        TRY(text_add_json(t, l->name));
        TRY(text_add(t,
                     ", \"count\": %d, \"forward_s\": %.9f, \"recompute_s\": %.9f, "
                     "\"backward_s\": %.9f, \"messages_s\": %.9f, \"flops\": %.10g, "
                     "\"parameters\": %lld}",
                     l->count, (double)l->forward_ns * 1e-9, (double)l->recompute_ns * 1e-9,
                     (double)l->backward_ns * 1e-9, (double)l->collective_ns * 1e-9, l->flops,
                     (long long)l->parameters));
    }
    return text_add(t, "]");
}

// Waits of the first rank, as its metrics tell them.
static status turns_add(arena *a, const predict_step *x, text *t)
{
    sim_turns turns;
    TRY(predict_step_turns(a, x, &turns));
    if (turns.count == 0) return ST_OK;
    const sim_turn *first = &turns.ranks[0];
    const double whole = (double)first->length;
    TRY(text_add(t,
                 "\"turns\": {\"step_s\": %.9f, \"compute\": %.8g, \"cores\": %.8g, \"data\": %.8g",
                 (double)turns.step_ns * 1e-9, (double)first->compute / whole,
                 (double)first->cores / whole, (double)first->data / whole));
    for (int k = 0; k < TRAFFIC_COUNT; k++) {
        TRY(text_add(t, ", \"%s\": %.8g", traffic_name((traffic)k),
                     (double)first->waits[k] / whole));
    }
    return text_add(t, "}, ");
}

status simulate_print_json(arena *a, const predict_step *x, const simulate_request *w,
                           const sim_long_run_result *run, text *out)
{
    const run_config *r = x->of->r;
    TRY(text_add(out, "{\"model\": "));
    TRY(text_add_json(out, x->of->name));
    TRY(text_add(out, ", \"cluster\": "));
    TRY(text_add_json(out, x->of->machine.name));
    TRY(text_add(out, ", \"profile\": "));
    TRY(text_add_json(out, x->of->profile.name));
    TRY(text_add(out, ", \"assumes\": "));
    TRY(text_add_json(out, simulate_assumes(x)));
    TRY(text_add(out, ", \"parameters\": %lld, \"global_batch\": %lld, \"seq\": %lld, ",
                 (long long)x->parameters, (long long)run_config_batch_max(r),
                 (long long)r->train.seq));
    TRY(layout_add(r, out));
    TRY(text_add(out,
                 ", \"micro_batch\": %lld, \"recompute\": \"%s\", \"recompute_layers\": %lld, ",
                 (long long)x->micro_batch, recompute_word(r), (long long)recompute_layers(x->of)));
    TRY(text_add(out, "\"precision\": \"%s\", \"devices\": %lld, ", precision_word(r),
                 (long long)x->devices));
    TRY(figures_add(x, out));
    TRY(text_add(out, ", "));
    TRY(idle_add(x, run, out));
    TRY(text_add(out, ", "));
    if (w != NULL) TRY(simulate_published_json(w, x, run, out));
    if (run != NULL) {
        TRY(sim_long_run_json(run, out));
        TRY(text_add(out, ", "));
    }
    TRY(turns_add(a, x, out));
    TRY(stages_add(x, out));
    TRY(text_add(out, ", "));
    TRY(layers_add(a, x, out));
    return text_add(out, "}\n");
}
