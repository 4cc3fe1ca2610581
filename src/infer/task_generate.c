// Prompts and answers of generation tasks.
#include "infer/task_answers.h"
#include "infer/task_internal.h"

#include "base/hash.h"
#include "infer/continuation.h"

#include <string.h>

// ---- prompts ------------------------------------------------------------------------------------

typedef struct prompts_reading {
    task_prompts *list;
    data_chat *chat;
    int64_t most; // tokens of a prompt
} prompts_reading;

static status shot_add(task_reading *r, const json *item)
{
    text own, target;
    TRY(task_render(r, r->context, item, NULL, &own));
    TRY(task_render(r, r->target, item, NULL, &target));
    TRY(text_add_bytes(&r->shots, own.bytes, own.length));
    TRY(text_add(&r->shots, "%s", r->spec->delimiter));
    TRY(text_add_bytes(&r->shots, target.bytes, target.length));
    return text_add(&r->shots, "%s", r->spec->separator != NULL ? r->spec->separator : "");
}

static status prompt_encode(task_reading *r, const prompts_reading *p, const json *item)
{
    text whole = {.a = r->scratch}, own;
    TRY(task_render(r, r->context, item, NULL, &own));
    TRY(text_add_bytes(&whole, r->shots.bytes, r->shots.length));
    TRY(text_add_bytes(&whole, own.bytes, own.length));
    r->ids.count = 0;
    if (p->chat == NULL) {
        return data_tokenizer_encode(r->t, whole.bytes, whole.length, data_tokenizer_flags(r->t),
                                     &r->ids);
    }
    text asked;
    TRY(data_chat_prompt(p->chat, r->scratch, NULL, whole.bytes, whole.length, &asked));
    return data_tokenizer_encode(r->t, asked.bytes, asked.length, DATA_ENCODE_SPECIAL, &r->ids);
}

static status copy(arena *a, const char *bytes, int64_t count, char **out)
{
    TRY(arena_new(a, count + 1, out));
    if (count > 0) memcpy(*out, bytes, (size_t)count);
    (*out)[count] = 0;
    return ST_OK;
}

static status prompt_add(task_reading *r, const json *item)
{
    prompts_reading *p = r->out;
    task_prompts *list = p->list;
    task_prompt x = {.line_number = r->line, .line_bytes = r->line_bytes};
    TRY(prompt_encode(r, p, item));
    if (r->ids.count == 0) return task_refused(r, "the context has no token", NULL);
    const int64_t skip = max_i64(0, r->ids.count - p->most);
    x.count = r->ids.count - skip;
    list->cut += skip > 0 ? 1 : 0;
    list->longest = max_i64(list->longest, x.count);
    TRY(arena_new(r->a, x.count, &x.ids));
    memcpy(x.ids, r->ids.items + skip, (size_t)x.count * sizeof(int32_t));
    if (r->target != NULL) {
        text target;
        char *kept = NULL;
        TRY(task_render(r, r->target, item, NULL, &target));
        TRY(copy(r->a, target.bytes, target.length, &kept));
        x.target = kept;
        x.target_bytes = target.length;
    }
    if (r->spec->command != NULL) TRY(copy(r->a, r->line_text, r->line_bytes, &x.line));
    TRY(arena_new(r->a, r->spec->samples, &x.answers));
    memset(x.answers, 0, (size_t)r->spec->samples * sizeof(*x.answers));
    TRY(arena_grow(r->a, (void **)&list->items, &list->capacity, list->count + 1,
                   sizeof(task_prompt)));
    list->items[list->count++] = x;
    return ST_OK;
}

status task_prompts_read(const host *h, arena *a, data_tokenizer *t, const task_spec *spec,
                         data_chat *chat, int64_t context, int64_t limit, task_prompts *out)
{
    prompts_reading p = {.list = out, .chat = chat, .most = context - spec->max_tokens};
    task_reading r = {.a = a, .t = t, .spec = spec, .out = &p};
    if (p.most < 1) {
        return fail(ST_CONFIG_RANGE,
                    "%s: max_tokens is %lld, which leaves nothing of the model's context of %lld "
                    "for a prompt",
                    spec->file, (long long)spec->max_tokens, (long long)context);
    }
    for (int64_t i = 0; i < spec->stop.count; i++) {
        const size_t bytes = strlen(spec->stop.items[i]);
        if (bytes > 0 && bytes <= INFER_STOP_BYTES_MAX) continue;
        return fail(ST_CONFIG_RANGE, "%s: a stop text has %zu bytes; expected 1 to %d", spec->file,
                    bytes, (int)INFER_STOP_BYTES_MAX);
    }
    if (spec->target != NULL) {
        TRY(jinja_parse(a, spec->target, (int64_t)strlen(spec->target), "target", &r.target));
    }
    TRY(arena_create("task", TASK_SCRATCH_BYTES_MAX, &r.scratch));
    const status st = task_lines_read(&r, h, limit, shot_add, prompt_add);
    data_ids_deinit(&r.ids);
    arena_destroy(r.scratch);
    TRY(st);
    return out->count > 0 ? ST_OK : fail(ST_DATA, "%s holds no item", spec->data);
}

// ---- answers ------------------------------------------------------------------------------------

typedef struct generating {
    const task_model *m;
    arena *a;
    const task_spec *spec;
    task_prompts *prompts;
    const task_watcher *watcher;
    infer_continuation *texts; // [prompt * samples + sample]
    int64_t done;
    bool is_stopped;
} generating;

static task_answer *answer_at(const generating *g, int64_t index)
{
    return &g->prompts->items[index / g->spec->samples].answers[index % g->spec->samples];
}

static status answer_end(generating *g, int64_t index)
{
    infer_continuation *c = &g->texts[index];
    task_answer *x = answer_at(g, index);
    TRY(infer_continuation_end(c));
    x->bytes = c->certain;
    TRY(copy(g->a, c->text.items, c->certain, &x->text));
    infer_continuation_deinit(c);
    *c = (infer_continuation){.stop_count = 0};
    g->done++;
    return ST_OK;
}

static status drawn(void *context, int64_t index, int32_t id, bool *ends)
{
    generating *g = context;
    task_answer *x = answer_at(g, index);
    bool is_end = false;
    for (int64_t i = 0; i < g->m->end_count; i++) is_end = is_end || g->m->ends[i] == id;
    if (!is_end) {
        x->tokens++;
        TRY(infer_continuation_add(&g->texts[index], g->m->t, id));
        is_end = g->texts[index].stopped;
        x->by_length = !is_end && x->tokens == g->spec->max_tokens;
    }
    *ends = is_end || x->by_length;
    return *ends ? answer_end(g, index) : ST_OK;
}

static bool stop_asked(void *context)
{
    generating *g = context;
    if (g->watcher == NULL) return false;
    const int64_t all = g->prompts->count * g->spec->samples;
    g->is_stopped = g->watcher->scored(g->watcher->context, "answers", g->done, all);
    return g->is_stopped;
}

static status prompts_run(generating *g)
{
    const task_spec *s = g->spec;
    const int64_t all = g->prompts->count * s->samples;
    infer_prompt *prompts = NULL;
    TRY(arena_new(g->a, all, &prompts));
    TRY(arena_new(g->a, all, &g->texts));
    for (int64_t i = 0; i < all; i++) {
        const task_prompt *p = &g->prompts->items[i / s->samples];
        const int64_t key[3] = {s->seed, i / s->samples, i % s->samples};
        prompts[i] = (infer_prompt){.ids = p->ids,
                                    .count = p->count,
                                    .max_tokens = s->max_tokens,
                                    .sampling = {.temperature = s->temperature,
                                                 .top_k = s->top_k,
                                                 .top_p = s->top_p,
                                                 .seed = hash64(key, sizeof(key), 0)}};
        g->texts[i] = (infer_continuation){.stops = s->stop.items, .stop_count = s->stop.count};
    }
    const infer_watcher watcher = {.context = g, .drawn = drawn, .stop = stop_asked};
    const status st = infer_run(g->m->g, prompts, all, &watcher);
    for (int64_t i = 0; i < all; i++) infer_continuation_deinit(&g->texts[i]);
    TRY(st);
    if (!g->is_stopped) return ST_OK;
    return fail(ST_STOPPED, "after %lld of %lld answers", (long long)g->done, (long long)all);
}

status task_generate(const task_model *m, arena *a, const task_spec *spec, task_prompts *prompts,
                     const task_watcher *watcher)
{
    generating g = {.m = m, .a = a, .spec = spec, .prompts = prompts, .watcher = watcher};
    return prompts_run(&g);
}
