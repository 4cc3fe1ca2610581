// Answers as OpenAI's API has them: whole, or as server-sent events.
#include "serve/job.h"

#include <stdio.h>
#include <string.h>

enum { JOB_BYTES_MAX = 256 << 20 };

static int64_t now_ns(const serve *s)
{
    return s->h->api->monotonic_ns(s->h);
}

void job_fail(serve *s, job *j, int code, const char *member, const char *message)
{
    text t = {.a = j->a};
    serve_count_answer(s, j->x->route, code);
    if (serve_error_text(&t, code, member, message) != ST_OK) {
        error_clear();
        t.length = 0;
    }
    exchange_answer(j->x, code, t.bytes, t.length);
}

void job_break(serve *s, job *j)
{
    j->is_broken = true;
    if (j->r.stream) {
        serve_count_answer(s, j->x->route, 500);
        exchange_end(j->x);
    } else {
        job_fail(s, j, 500, NULL, error_last()->text);
    }
    error_clear();
}

// ---- a request becomes sequences ----------------------------------------------------------------

static int64_t tokens_most(const serve *s, const sequence *q)
{
    const int64_t asked = q->owner->r.max_tokens, left = s->model.context - q->prompt->count;
    return asked > 0 ? asked : left;
}

// Space for the probabilities of every token that may be drawn.
static status likely_make(const serve *s, job *j)
{
    enum { TOLD_MAX = 1 << 20 };
    int64_t told = 0;
    if (j->r.likely < 0) return ST_OK;
    for (int64_t i = 0; i < j->count; i++) {
        told += (tokens_most(s, &j->sequences[i]) + 1) * (1 + j->r.likely);
    }
    if (told > TOLD_MAX) {
        j->r.code = 400;
        j->r.member = "logprobs";
        return fail(ST_DATA,
                    "up to %lld probabilities are asked for, %d are the most; \"max_tokens\" "
                    "limits them",
                    (long long)told, (int)TOLD_MAX);
    }
    for (int64_t i = 0; i < j->count; i++) {
        sequence *q = &j->sequences[i];
        TRY(arena_new(j->a, (tokens_most(s, q) + 1) * (1 + j->r.likely), &q->likely));
    }
    return ST_OK;
}

static status sequences_make(const serve *s, job *j)
{
    const serve_request *r = &j->r;
    infer_sampling sampling = r->sampling;
    if (!r->seeded) {
        TRY(s->h->api->random_fill(s->h, &sampling.seed, (int64_t)sizeof(sampling.seed)));
    }
    j->count = r->prompt_count * r->drawn;
    TRY(arena_new(j->a, j->count, &j->sequences));
    for (int64_t i = 0; i < j->count; i++) {
        j->sequences[i] = (sequence){.owner = j,
                                     .index = i,
                                     .prompt = &r->prompts[i / r->drawn],
                                     .sampling = sampling,
                                     .slot = -1};
        j->sequences[i].sampling.seed += (uint64_t)(i % r->drawn);
        j->sequences[i].grown.stops = r->stops;
        j->sequences[i].grown.stop_count = r->stop_count;
    }
    return likely_make(s, j);
}

static status job_name(const serve *s, job *j)
{
    uint64_t random[2];
    TRY(s->h->api->random_fill(s->h, random, (int64_t)sizeof(random)));
    (void)snprintf(j->id, sizeof(j->id), "%s-%012llx%012llx", j->r.chat ? "chatcmpl" : "cmpl",
                   (unsigned long long)random[0] >> 16, (unsigned long long)random[1] >> 16);
    j->created_s = s->h->api->unix_ns(s->h) / 1000000000;
    return ST_OK;
}

status job_create(serve *s, exchange *x, job **out)
{
    arena *a = NULL;
    job *j = NULL;
    *out = NULL;
    TRY(arena_create("request", JOB_BYTES_MAX, &a));
    status st = arena_new(a, 1, &j);
    if (st != ST_OK) {
        arena_destroy(a);
        return st;
    }
    *j = (job){.a = a, .x = x};
    exchange_hold(x);
    st = serve_request_read(&s->model, a, x->route == ROUTE_CHAT, x->body.items, x->body.count,
                            &j->r);
    if (st == ST_OK) st = sequences_make(s, j);
    if (st == ST_OK) st = job_name(s, j);
    if (st != ST_OK) {
        job_fail(s, j, j->r.code, j->r.member, error_last()->text);
        error_clear();
        job_destroy(j);
        return ST_OK;
    }
    (void)pthread_mutex_lock(&s->lock);
    for (int64_t i = 0; i < j->r.prompt_count; i++) {
        const int64_t tokens = j->r.prompts[i].count;
        s->metrics.counts.prompt_tokens += tokens;
        serve_observe(&s->metrics.prompt_length, serve_token_bounds, (double)tokens);
    }
    (void)pthread_mutex_unlock(&s->lock);
    if (j->r.stream) exchange_begin(x);
    *out = j;
    return ST_OK;
}

void job_destroy(job *j)
{
    if (j == NULL) return;
    for (int64_t i = 0; i < j->count; i++) infer_continuation_deinit(&j->sequences[i].grown);
    serve_request_deinit(&j->r);
    exchange_drop(j->x);
    arena_destroy(j->a);
}

// ---- parts of an answer -------------------------------------------------------------------------

static const char *finish_text(finish why)
{
    return why == FINISH_STOP ? "\"stop\"" : why == FINISH_LENGTH ? "\"length\"" : "null";
}

static status add_head(const serve *s, const job *j, const char *object, text *t)
{
    TRY(text_add(t, "{\"id\": \"%s\", \"object\": \"%s\", \"created\": %lld, \"model\": ", j->id,
                 object, (long long)j->created_s));
    const int64_t adapter = j->r.adapter;
    TRY(text_add_json(t, adapter < 0 ? s->model.name : s->model.adapters[adapter]));
    return text_add(t, ", \"choices\": [");
}

static status add_usage(const job *j, text *t)
{
    int64_t prompt = 0, drawn = 0;
    for (int64_t i = 0; i < j->r.prompt_count; i++) prompt += j->r.prompts[i].count;
    for (int64_t i = 0; i < j->count; i++) drawn += j->sequences[i].tokens;
    return text_add(t,
                    "\"usage\": {\"prompt_tokens\": %lld, \"completion_tokens\": %lld, "
                    "\"total_tokens\": %lld}",
                    (long long)prompt, (long long)drawn, (long long)(prompt + drawn));
}

// ---- a stream -----------------------------------------------------------------------------------

// An event with what became certain, or with the end of a choice.
static status send_event(const serve *s, sequence *q, bool is_end)
{
    job *j = q->owner;
    const int64_t count = is_end ? 0 : q->grown.certain - q->told;
    text t = {.a = s->event};
    arena_reset(s->event);
    TRY(text_add(&t, "data: "));
    TRY(add_head(s, j, j->r.chat ? "chat.completion.chunk" : "text_completion", &t));
    TRY(text_add(&t, "{\"index\": %lld, ", (long long)q->index));
    if (j->r.chat) {
        TRY(text_add(&t, "\"delta\": {"));
        if (!q->role_told) TRY(text_add(&t, "\"role\": \"assistant\", "));
        if (!is_end || !q->role_told) TRY(text_add(&t, "\"content\": "));
    } else {
        TRY(text_add(&t, "\"text\": "));
    }
    if (!j->r.chat || !is_end || !q->role_told) {
        TRY(text_add_json_bytes(&t, q->grown.text.items + q->told, count));
    }
    q->role_told = true;
    q->told += count;
    TRY(text_add(&t, "%s, \"logprobs\": ", j->r.chat ? "}" : ""));
    TRY(serve_likely_text(s->model.tokenizer, q, &t));
    TRY(text_add(&t, ", \"finish_reason\": %s}]}\n\n", is_end ? finish_text(q->why) : "null"));
    exchange_add(j->x, t.bytes, t.length);
    return ST_OK;
}

static status stream_end(const serve *s, job *j)
{
    text t = {.a = j->a};
    if (j->r.usage) {
        TRY(text_add(&t, "data: "));
        TRY(add_head(s, j, j->r.chat ? "chat.completion.chunk" : "text_completion", &t));
        TRY(text_add(&t, "], "));
        TRY(add_usage(j, &t));
        TRY(text_add(&t, "}\n\n"));
    }
    TRY(text_add(&t, "data: [DONE]\n\n"));
    exchange_add(j->x, t.bytes, t.length);
    exchange_end(j->x);
    return ST_OK;
}

// ---- tokens -------------------------------------------------------------------------------------

static bool ends_text(const serve_model *m, int32_t id)
{
    for (int64_t i = 0; i < m->end_count; i++) {
        if (m->ends[i] == id) return true;
    }
    return false;
}

// A probability takes a sum over the vocabulary, which no token pays that does not need it.
static void likely_take(const serve *s, sequence *q, int32_t id)
{
    const serve_request *r = &q->owner->r;
    const bool chooses = r->drawn > r->choices || r->by_majority;
    if (q->likely == NULL && !chooses && !s->options.watches) return;
    infer_likely one;
    infer_likely *out = &one;
    if (q->likely != NULL) out = q->likely + q->draws * (1 + r->likely);
    infer_slot_likely(s->model.g, q->slot, id, max_i64(0, r->likely), out);
    q->log_p += out[0].log_p;
    q->draws++;
}

status job_drawn(serve *s, sequence *q, int32_t id)
{
    const job *j = q->owner;
    const int64_t most = tokens_most(s, q);
    q->next = id;
    likely_take(s, q, id);
    if (ends_text(&s->model, id)) {
        q->why = FINISH_STOP;
    } else {
        q->tokens++;
        TRY(infer_continuation_add(&q->grown, s->model.tokenizer, id));
        q->why = q->grown.stopped    ? FINISH_STOP
                 : q->tokens >= most ? FINISH_LENGTH
                                     : FINISH_NOT_YET;
    }
    if (q->why != FINISH_NOT_YET) TRY(infer_continuation_end(&q->grown));
    if (!j->r.stream) return ST_OK;
    if (q->grown.certain > q->told) TRY(send_event(s, q, false));
    return q->why != FINISH_NOT_YET ? send_event(s, q, true) : ST_OK;
}

static status add_choice(const serve *s, sequence *q, text *t)
{
    const bool chat = q->owner->r.chat;
    TRY(text_add(t, "%s{\"index\": %lld, %s", q->index > 0 ? ", " : "", (long long)q->index,
                 chat ? "\"message\": {\"role\": \"assistant\", \"content\": " : "\"text\": "));
    TRY(text_add_json_bytes(t, q->grown.text.items, q->grown.certain));
    TRY(text_add(t, "%s, \"logprobs\": ", chat ? "}" : ""));
    TRY(serve_likely_text(s->model.tokenizer, q, t));
    return text_add(t, ", \"finish_reason\": %s}", finish_text(q->why));
}

static status whole_end(const serve *s, job *j)
{
    text t = {.a = j->a};
    TRY(add_head(s, j, j->r.chat ? "chat.completion" : "text_completion", &t));
    for (int64_t i = 0; i < j->best_count; i++) TRY(add_choice(s, j->best[i], &t));
    TRY(text_add(&t, "], "));
    TRY(add_usage(j, &t));
    TRY(text_add(&t, "}\n"));
    exchange_answer(j->x, 200, t.bytes, t.length);
    return ST_OK;
}

status job_end(serve *s, job *j)
{
    TRY(job_choose(j));
    for (int64_t i = 0; i < j->best_count && s->options.watches; i++) {
        const sequence *q = j->best[i];
        const drift_answer answer = {.prompt_tokens = q->prompt->count,
                                     .answer_tokens = q->tokens,
                                     .nats = -q->log_p / (double)max_i64(1, q->draws),
                                     .text = q->grown.text.items,
                                     .bytes = q->grown.certain};
        drift_add(&s->seen, &answer);
        drift_add(&s->recent, &answer);
    }
    (void)pthread_mutex_lock(&s->lock);
    for (int64_t i = 0; i < j->count; i++) {
        const int64_t tokens = j->sequences[i].tokens;
        serve_observe(&s->metrics.answer_length, serve_token_bounds, (double)tokens);
    }
    serve_observe(&s->metrics.answer_s, serve_second_bounds,
                  (double)(now_ns(s) - j->x->begin_ns) / 1e9);
    (void)pthread_mutex_unlock(&s->lock);
    TRY(j->r.stream ? stream_end(s, j) : whole_end(s, j));
    serve_count_answer(s, j->x->route, 200);
    return ST_OK;
}
