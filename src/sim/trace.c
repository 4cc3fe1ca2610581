// Writes a simulated step as a Chrome trace.
#include "sim/sim.h"

static const char *name_of(const plan *p, const plan_action *x)
{
    static const char *const lists[] = {"forward", "recompute", "backward", "weights"};
    if (x->kind == ACTION_COMMUNICATE) return p->comms[x->comm].name;
    if (x->kind == ACTION_COPY) return "batch";
    if (x->kind == ACTION_READBACK) return "results";
    if (x->kind == ACTION_OPTIMIZER) return "optimizer";
    return x->layer < 0 ? "sum" : lists[x->list];
}

static status track_print(int32_t rank, int32_t stream, const char *name, text *out)
{
    return text_add(out,
                    "{\"name\": \"thread_name\", \"ph\": \"M\", \"pid\": %d, \"tid\": %d, "
                    "\"args\": {\"name\": \"%s\"}},\n",
                    rank, stream, name);
}

static status rank_print(const sim_rank *rank, const sim_span *spans, int64_t zero, int32_t number,
                         text *out)
{
    const plan *p = rank->p;
    TRY(text_add(out,
                 "{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": %d, \"args\": {\"name\": "
                 "\"stage %d\"}},\n",
                 number, number));
    TRY(track_print(number, STREAM_COMPUTE, "compute", out));
    TRY(track_print(number, STREAM_COPY, "copy", out));
    for (int32_t g = 0; g < p->run->group_count; g++) {
        char name[PLAN_GROUP_NAME_BYTES];
        if (p->run->groups[g].use == GROUP_INLINE) continue;
        plan_group_name(&p->run->groups[g], name);
        TRY(track_print(number, STREAM_GROUPS + g, name, out));
    }
    for (int64_t i = 0; i < p->action_count; i++) {
        const plan_action *x = &p->actions[i];
        TRY(text_add(out,
                     "{\"name\": \"%s\", \"ph\": \"X\", \"pid\": %d, \"tid\": %d, \"ts\": %.3f, "
                     "\"dur\": %.3f",
                     name_of(p, x), number, x->stream, (double)(spans[i].begin - zero) / 1e3,
                     (double)(spans[i].end - spans[i].begin) / 1e3));
        if (x->microbatch >= 0 || x->layer >= 0) {
            TRY(text_add(out, ", \"args\": {\"microbatch\": %d, \"layer\": \"%s\"}", x->microbatch,
                         x->layer >= 0 ? p->model->layers[x->layer].name : ""));
        }
        TRY(text_add(out, "},\n"));
    }
    return ST_OK;
}

status sim_trace_print(const sim_rank *ranks, const sim_step *step, text *out)
{
    int64_t zero = INT64_MAX;
    for (int32_t r = 0; r < step->ranks; r++) {
        for (int64_t i = 0; i < ranks[r].p->action_count; i++) {
            zero = min_i64(zero, step->spans[r][i].begin);
        }
    }
    TRY(text_add(out, "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n"));
    for (int32_t r = 0; r < step->ranks; r++) {
        TRY(rank_print(&ranks[r], step->spans[r], zero, r, out));
    }
    // The last entry of the list has no comma.
    return text_add(out,
                    "{\"name\": \"step\", \"ph\": \"M\", \"pid\": 0, \"args\": "
                    "{\"step_ns\": %lld}}\n]}\n",
                    (long long)step->step_ns);
}
