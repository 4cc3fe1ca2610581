// The model's thread: requests in their order, slots, a token for each sequence in turn.
#include "control/thread.h"
#include "serve/job.h"

static int64_t now_ns(const serve *s)
{
    return s->h->api->monotonic_ns(s->h);
}

status serve_open(const host *h, arena *a, const serve_model *model, const serve_options *options,
                  serve **out)
{
    enum { EVENT_BYTES_MAX = 16 << 20 };
    serve *s = NULL;
    TRY(arena_new(a, 1, &s));
    *s = (serve){.h = h, .model = *model, .options = *options, .adapter = -1};
    s->options.watches = options->watches || options->reference != NULL;
    s->begin_unix_s = h->api->unix_ns(h) / 1000000000;
    TRY(arena_new(a, infer_slots(model->g), &s->slots));
    (void)pthread_mutex_init(&s->lock, NULL);
    (void)pthread_cond_init(&s->changed, NULL);
    TRY(arena_create("event", EVENT_BYTES_MAX, &s->event));
    const status st = serve_http_open(s, a, &s->http);
    if (st != ST_OK) arena_destroy(s->event);
    TRY(st);
    s->port = serve_http_port(s->http);
    *out = s;
    return ST_OK;
}

int64_t serve_port(const serve *s)
{
    return s->port;
}

serve_counts serve_counted(serve *s)
{
    (void)pthread_mutex_lock(&s->lock);
    const serve_counts counts = s->metrics.counts;
    (void)pthread_mutex_unlock(&s->lock);
    return counts;
}

// ---- requests, from the connections' threads ----------------------------------------------------

typedef status (*answer_writer)(serve *s, const exchange *x, text *t);

static void answer_text(serve *s, exchange *x, int code, answer_writer write, const char *message)
{
    enum { BYTES_MAX = 1 << 20 };
    text t = {.a = NULL};
    status st = arena_create("answer", BYTES_MAX, &t.a);
    if (st == ST_OK)
        st = write != NULL ? write(s, x, &t) : serve_error_text(&t, code, NULL, message);
    if (st != ST_OK) {
        error_clear();
        t.length = 0;
        code = 500;
    }
    serve_count_answer(s, x->route, code);
    exchange_answer(x, code, t.bytes, t.length);
    arena_destroy(t.a);
}

static status models_text(serve *s, const exchange *x, text *t)
{
    return serve_models_text(s, x->model, t);
}

static status health_text(serve *s, const exchange *x, text *t)
{
    (void)s;
    (void)x;
    return text_add(t, "{\"status\": \"ok\"}\n");
}

static status metrics_text(serve *s, const exchange *x, text *t)
{
    (void)x;
    return serve_metrics_text(s, t);
}

// Puts it into the queue; false: there are too many, or the server is stopping.
static bool queue_up(serve *s, exchange *x)
{
    (void)pthread_mutex_lock(&s->lock);
    const bool taken = !s->stopping && s->open_requests < s->options.requests;
    if (taken) {
        exchange_hold(x);
        if (s->last != NULL) {
            s->last->next = x;
        } else {
            s->first = x;
        }
        s->last = x;
        s->open_requests++;
        (void)pthread_cond_signal(&s->changed);
    }
    (void)pthread_mutex_unlock(&s->lock);
    return taken;
}

void serve_submit(serve *s, exchange *x)
{
    static const answer_writer writers[ROUTE_COUNT] = {
        [ROUTE_MODELS] = models_text,
        [ROUTE_HEALTH] = health_text,
        [ROUTE_METRICS] = metrics_text,
    };
    x->begin_ns = now_ns(s);
    if (writers[x->route] != NULL) {
        answer_text(s, x, 200, writers[x->route], NULL);
    } else if (!queue_up(s, x)) {
        answer_text(s, x, 503, NULL, "too many requests at once, or the server is stopping");
    }
}

// ---- the model's thread -------------------------------------------------------------------------

static bool is_idle(const serve *s)
{
    return s->jobs == NULL && s->first == NULL;
}

// The oldest request that no one read yet; waits a little if there is nothing at all to do.
static exchange *next_request(serve *s)
{
    enum { WAIT_NS = 100000000 };
    exchange *x = NULL;
    (void)pthread_mutex_lock(&s->lock);
    if (is_idle(s)) (void)control_condition_wait(&s->changed, &s->lock, WAIT_NS);
    x = s->first;
    if (x != NULL) {
        s->first = x->next;
        if (s->first == NULL) s->last = NULL;
        x->next = NULL;
    }
    (void)pthread_mutex_unlock(&s->lock);
    return x;
}

static void request_over(serve *s)
{
    (void)pthread_mutex_lock(&s->lock);
    s->open_requests--;
    (void)pthread_mutex_unlock(&s->lock);
}

static status take_requests(serve *s)
{
    for (exchange *x = next_request(s); x != NULL; x = next_request(s)) {
        job *j = NULL;
        const status st = job_create(s, x, &j);
        if (st != ST_OK) exchange_answer(x, 500, NULL, 0);
        exchange_drop(x);
        TRY(st);
        if (j == NULL) {
            request_over(s);
            continue;
        }
        j->turn = ++s->turn;
        job **end = &s->jobs;
        while (*end != NULL) end = &(*end)->next;
        *end = j;
    }
    return ST_OK;
}

static status release(serve *s, sequence *q)
{
    const int64_t slot = q->slot;
    if (slot < 0) return ST_OK;
    s->slots[slot] = NULL;
    q->slot = -1;
    return infer_slot_end(s->model.g, slot);
}

static status drawn(serve *s, sequence *q, int32_t id)
{
    if (q->owner->is_broken) return ST_OK;
    if (job_drawn(s, q, id) != ST_OK) {
        job_break(s, q->owner);
        return ST_OK;
    }
    (void)pthread_mutex_lock(&s->lock);
    s->metrics.counts.generated++;
    (void)pthread_mutex_unlock(&s->lock);
    if (q->why == FINISH_NOT_YET) return ST_OK;
    q->owner->over++;
    return release(s, q);
}

static bool is_busy(const serve *s)
{
    for (int64_t i = 0; i < infer_slots(s->model.g); i++) {
        if (s->slots[i] != NULL) return true;
    }
    return false;
}

// All sequences at once have one adapter. The oldest waiting request decides which: if it wants
// another one, it waits until all slots are free, and younger requests wait behind it.
static status adapter_turn(serve *s, const job *j, bool *may_begin)
{
    *may_begin = j->r.adapter == s->adapter;
    if (*may_begin || is_busy(s)) return ST_OK;
    TRY(infer_adapter_use(s->model.g, j->r.adapter));
    s->adapter = j->r.adapter;
    *may_begin = true;
    return ST_OK;
}

// The request that gets the next free slot: the one that has waited longest since it came or since
// a sequence of it began, so a request of many sequences takes turns with others. NULL: none may.
static status job_next(serve *s, job **out)
{
    *out = NULL;
    for (job *j = s->jobs; j != NULL; j = j->next) {
        if (j->is_broken || j->begun == j->count) continue;
        bool may_begin = j->r.adapter == s->adapter;
        if (*out == NULL) TRY(adapter_turn(s, j, &may_begin));
        if (!may_begin) return ST_OK;
        if (*out == NULL || j->turn < (*out)->turn) *out = j;
    }
    return ST_OK;
}

static status sequence_begin(serve *s, job *j, int64_t slot)
{
    int32_t id = 0;
    sequence *q = &j->sequences[j->begun++];
    j->turn = ++s->turn;
    q->slot = slot;
    s->slots[slot] = q;
    TRY(infer_slot_begin(s->model.g, slot, &q->sampling, q->prompt->items, q->prompt->count, &id));
    (void)pthread_mutex_lock(&s->lock);
    s->metrics.kept_tokens = infer_kept_tokens(s->model.g);
    if (q == j->sequences) {
        serve_observe(&s->metrics.first_token_s, serve_second_bounds,
                      (double)(now_ns(s) - j->x->begin_ns) / 1e9);
    }
    (void)pthread_mutex_unlock(&s->lock);
    return drawn(s, q, id);
}

// Gives waiting sequences the free slots, as long as the cache has pages for their prompts; a
// sequence may end with its first token.
static status begin_sequences(serve *s)
{
    for (int64_t slot = 0; slot < infer_slots(s->model.g); slot++) {
        while (s->slots[slot] == NULL) {
            job *j = NULL;
            TRY(job_next(s, &j));
            if (j == NULL) return ST_OK;
            const data_ids *prompt = j->sequences[j->begun].prompt;
            if (!infer_fits(s->model.g, prompt->items, prompt->count)) return ST_OK;
            TRY(sequence_begin(s, j, slot));
        }
    }
    return ST_OK;
}

static status extend_sequences(serve *s, arena *turns_arena)
{
    infer_turn *turns = NULL;
    int64_t count = 0;
    arena_reset(turns_arena);
    TRY(arena_new(turns_arena, infer_slots(s->model.g), &turns));
    for (int64_t i = 0; i < infer_slots(s->model.g); i++) {
        if (s->slots[i] != NULL) turns[count++] = (infer_turn){.slot = i, .id = s->slots[i]->next};
    }
    if (count == 0) return ST_OK;
    TRY(infer_slots_next(s->model.g, turns, count));
    for (int64_t i = 0; i < count; i++) {
        if (turns[i].next >= 0) TRY(drawn(s, s->slots[turns[i].slot], turns[i].next));
    }
    return ST_OK;
}

// Ends the jobs whose sequences all ended, and those whose clients left.
static status end_jobs(serve *s)
{
    int64_t waiting = 0, running = 0;
    for (job **at = &s->jobs; *at != NULL;) {
        job *j = *at;
        const bool gone = j->is_broken || exchange_is_gone(j->x);
        if (!gone && j->over < j->count) {
            waiting += j->count - j->begun;
            running += j->begun - j->over;
            at = &j->next;
            continue;
        }
        for (int64_t i = 0; i < j->count; i++) TRY(release(s, &j->sequences[i]));
        *at = j->next;
        if (!gone && job_end(s, j) != ST_OK) job_break(s, j);
        job_destroy(j);
        request_over(s);
    }
    (void)pthread_mutex_lock(&s->lock);
    s->metrics.waiting = waiting;
    s->metrics.running = running;
    s->metrics.cache = infer_cache_counted(s->model.g);
    (void)pthread_mutex_unlock(&s->lock);
    return ST_OK;
}

const drift_window *serve_seen(const serve *s)
{
    return &s->seen;
}

// Compares a full window with the reference, and begins the next one.
static void drift_compare(serve *s, const serve_watcher *watcher)
{
    const drift_window recent = s->recent;
    if (s->options.reference == NULL || recent.answers < s->options.window) return;
    s->recent = (drift_window){0};
    for (int of = 0; of < DRIFT_COUNT; of++) {
        const double index = drift_index(&recent, s->options.reference, (drift_of)of);
        (void)pthread_mutex_lock(&s->lock);
        s->metrics.drift[of] = index;
        s->metrics.alerts[of] += index > drift_alert ? 1 : 0;
        s->metrics.windows += of == 0 ? 1 : 0;
        (void)pthread_mutex_unlock(&s->lock);
        if (index > drift_alert && watcher->drifted != NULL) {
            watcher->drifted(watcher->context, (drift_of)of, index);
        }
    }
}

// About once a second: ends clients that are too slow, and tells other ranks of the model that wait
// for the next step that this one is there.
static status look(serve *s)
{
    const int64_t now = now_ns(s);
    if (now - s->looked_ns < INT64_C(1000000000)) return ST_OK;
    s->looked_ns = now;
    serve_http_look(s->http);
    return s->jobs == NULL ? infer_wait(s->model.g) : ST_OK;
}

status serve_run(serve *s, const serve_watcher *watcher)
{
    enum { TURNS_BYTES = 1 << 20 };
    arena *turns = NULL;
    TRY(arena_create("turns", TURNS_BYTES, &turns));
    status st = ST_OK;
    while (st == ST_OK && !watcher->stop(watcher->context)) {
        st = take_requests(s);
        if (st == ST_OK) st = begin_sequences(s);
        if (st == ST_OK) st = extend_sequences(s, turns);
        if (st == ST_OK) st = end_jobs(s);
        if (st == ST_OK) st = look(s);
        drift_compare(s, watcher);
    }
    arena_destroy(turns);
    return st;
}

// All that still wait learn that the server stops, so that their threads end.
static void dismiss(serve *s)
{
    (void)pthread_mutex_lock(&s->lock);
    s->stopping = true;
    exchange *x = s->first;
    s->first = s->last = NULL;
    (void)pthread_mutex_unlock(&s->lock);
    while (x != NULL) {
        exchange *next = x->next;
        answer_text(s, x, 503, NULL, "the server is stopping");
        exchange_drop(x);
        x = next;
    }
    while (s->jobs != NULL) {
        job *j = s->jobs;
        s->jobs = j->next;
        job_fail(s, j, 503, NULL, "the server is stopping");
        job_destroy(j);
    }
}

void serve_close(serve *s)
{
    if (s == NULL) return;
    dismiss(s);
    serve_http_close(s->http);
    arena_destroy(s->event);
    (void)pthread_cond_destroy(&s->changed);
    (void)pthread_mutex_destroy(&s->lock);
}
