// The failure detector: gone and silent ranks come first, then stuck ranks. Only if no single rank
// is to blame does it look for a cycle of waits.
//
// It costs O(ranks + edges), ten times a second. The graph walk keeps its path on an explicit
// stack, bounded by the number of ranks, because the edges come from peers.
#include "control/failure_detector.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CYCLE_SHOWN = 8, DIVERGED_WAIT_NS = 300 * 1000 * 1000 };

const char *control_verdict_name(control_verdict v)
{
    static const char *const names[CONTROL_VERDICTS] = {
        "fine", "dead", "stopped", "stuck", "slow", "diverged", "deadlocked",
    };
    return (unsigned)v < CONTROL_VERDICTS ? names[v] : "?";
}

void control_limits_complete(control_limits *l)
{
    const int64_t ms = 1000000;
    if (l->beat_ns == 0) l->beat_ns = 100 * ms;
    if (l->silence_ns == 0) l->silence_ns = 800 * ms;
    if (l->starved_ns == 0) l->starved_ns = 10000 * ms;
    if (l->stuck_ns == 0) l->stuck_ns = 500 * ms;
    if (l->stuck_steps <= 0) l->stuck_steps = 3;
    if (l->slow_ratio <= 0) l->slow_ratio = 1.15;
    if (l->slow_steps == 0) l->slow_steps = 4;
}

typedef struct detector {
    control_seen *seen;
    int ranks;
    uint64_t here;
    int64_t now, late;
    const control_limits *limits;
    int64_t stuck_after;
    control_finding *out;
    int count, capacity;
} detector;

static control_finding *suspect(detector *d, int rank, control_verdict v, const char *format, ...)
    PRINTF_LIKE(4, 5);
static control_finding *suspect(detector *d, int rank, control_verdict v, const char *format, ...)
{
    if (d->count == d->capacity) return NULL;
    control_finding *f = &d->out[d->count++];
    f->rank = rank;
    f->verdict = v;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(f->text, sizeof(f->text), format, args);
    va_end(args);
    return f;
}

static bool is_silent(const detector *d, int rank)
{
    const control_seen *s = &d->seen[rank];
    const int64_t limit = s->is_running ? d->limits->starved_ns : d->limits->silence_ns;
    return d->now - s->heard_at - d->late > limit;
}

// The rank's own heartbeats show no progress up to the last one. Silence after it proves nothing: a
// silent rank may be stopped.
static bool is_standing(const detector *d, int rank)
{
    const control_seen *s = &d->seen[rank];
    return s->is_here && !s->is_gone && s->report.step_ns > 0 &&
           s->heard_at - s->moved_at - d->late > d->stuck_after;
}

// Another rank on the same machine still answers.
static bool machine_answers(const detector *d, int rank)
{
    const uint64_t machine = d->seen[rank].machine;
    if (machine == d->here) return true;
    for (int r = 0; r < d->ranks; r++) {
        const control_seen *s = &d->seen[r];
        if (s->machine == machine && s->is_here && !s->is_gone && !is_silent(d, r)) return true;
    }
    return false;
}

static void detect_silence(detector *d)
{
    for (int r = 0; r < d->ranks; r++) {
        const control_seen *s = &d->seen[r];
        if (!s->is_here) continue;
        if (s->is_gone) {
            (void)suspect(d, r, CONTROL_DEAD,
                          "rank %d (%s) is dead: its process ended in step %lld", r, s->host,
                          (long long)s->report.step);
        } else if (is_silent(d, r)) {
            const double silent_s = (double)(d->now - s->heard_at) / 1e9;
            if (machine_answers(d, r)) {
                (void)suspect(
                    d, r, CONTROL_STOPPED,
                    "rank %d (%s) is stopped: it has been silent for %.1f s in step %lld, "
                    "while its machine answers",
                    r, s->host, silent_s, (long long)s->report.step);
            } else {
                (void)suspect(d, r, CONTROL_DEAD,
                              "rank %d (%s) is dead: its whole machine has been silent for %.1f s",
                              r, s->host, silent_s);
            }
        }
    }
}

static int waiting_for(const detector *d, int rank, uint64_t *operation)
{
    int count = 0;
    for (int r = 0; r < d->ranks; r++) {
        const control_report *p = &d->seen[r].report;
        if (!d->seen[r].is_here) continue;
        for (int e = 0; e < p->edge_count; e++) {
            if (p->edges[e].rank != rank) continue;
            *operation = p->edges[e].operation;
            count++;
            break;
        }
    }
    return count;
}

static void detect_stuck(detector *d)
{
    for (int r = 0; r < d->ranks; r++) {
        const control_seen *s = &d->seen[r];
        if (!is_standing(d, r) || s->report.edge_count > 0) continue;
        uint64_t operation = 0;
        const int waiting = waiting_for(d, r, &operation);
        control_finding *f = suspect(
            d, r, CONTROL_STUCK, "rank %d (%s) is stuck: no progress for %.1f s in step %lld", r,
            s->host, (double)(d->now - s->moved_at) / 1e9, (long long)s->report.step);
        if (f == NULL) return;
        const size_t used = strlen(f->text), left = sizeof(f->text) - used;
        char waits[64] = "";
        if (waiting > 0) {
            (void)snprintf(waits, sizeof(waits), "; %d rank%s for it in #%llu", waiting,
                           waiting == 1 ? " waits" : "s wait", (unsigned long long)operation);
        }
        (void)snprintf(f->text + used, left, "%s%s%s", s->report.doing[0] == '\0' ? "" : ", ",
                       s->report.doing, waits);
    }
}

// A rank that waits for one that has left waits forever.
static void detect_left(detector *d)
{
    for (int r = 0; r < d->ranks; r++) {
        const control_report *p = &d->seen[r].report;
        if (!is_standing(d, r)) continue;
        for (int e = 0; e < p->edge_count; e++) {
            const int other = p->edges[e].rank;
            if (other < 0 || other >= d->ranks || d->seen[other].is_here) continue;
            (void)suspect(d, r, CONTROL_DEADLOCKED,
                          "rank %d (%s) waits for #%llu of rank %d, which has left", r,
                          d->seen[r].host, (unsigned long long)p->edges[e].operation, other);
            break;
        }
    }
}

// ---- cycles -------------------------------------------------------------------------------------
enum { UNSEEN, ON_PATH, DONE };
typedef struct walk {
    int32_t *path, *edge; // rank at each depth, and its edge that the walk follows
    uint8_t *state;
    int depth;
} walk;

static void tell_cycle(detector *d, const walk *w, int from)
{
    // The text starts with the lowest rank, so that the same cycle always gives the same text.
    const int length = w->depth - from;
    int lowest = 0;
    for (int i = 1; i < length; i++) {
        if (w->path[from + i] < w->path[from + lowest]) lowest = i;
    }
    const int first = w->path[from + lowest];
    control_finding *f = suspect(d, first, CONTROL_DEADLOCKED, "%d ranks are deadlocked: ", length);
    if (f == NULL) return;
    for (int i = 0; i < length && i < CYCLE_SHOWN; i++) {
        const int at = from + (lowest + i) % length, rank = w->path[at];
        const control_edge *e = &d->seen[rank].report.edges[w->edge[at]];
        const control_report *other = &d->seen[e->rank].report;
        const char *lost = "";
        for (int k = 0; k < other->edge_count; k++) {
            if (other->edges[k].group == e->group && other->edges[k].operation > e->operation) {
                lost = ", which is past it (a message was lost)";
            }
        }
        const size_t used = strlen(f->text);
        (void)snprintf(f->text + used, sizeof(f->text) - used,
                       "%srank %d (%s) waits for #%llu of rank %d%s", i == 0 ? "" : "; ", rank,
                       d->seen[rank].host, (unsigned long long)e->operation, e->rank, lost);
    }
}

// Searches depth first over ranks without progress. Returns whether it found a cycle.
static bool walk_from(detector *d, walk *w, int start)
{
    w->depth = 0;
    w->path[w->depth] = start;
    w->edge[w->depth++] = -1;
    w->state[start] = ON_PATH;
    while (w->depth > 0) {
        const int at = w->depth - 1, rank = w->path[at];
        if (++w->edge[at] >= d->seen[rank].report.edge_count) {
            w->state[rank] = DONE;
            w->depth--;
            continue;
        }
        const int next = d->seen[rank].report.edges[w->edge[at]].rank;
        if (next < 0 || next >= d->ranks || !is_standing(d, next)) continue;
        if (w->state[next] == ON_PATH) {
            int from = 0;
            while (w->path[from] != next) from++;
            tell_cycle(d, w, from);
            return true;
        }
        if (w->state[next] == UNSEEN) {
            w->state[next] = ON_PATH;
            w->path[w->depth] = next;
            w->edge[w->depth++] = -1;
        }
    }
    return false;
}

static void detect_cycles(detector *d)
{
    walk w = {.path = calloc((size_t)(unsigned)d->ranks, sizeof(*w.path)),
              .edge = calloc((size_t)(unsigned)d->ranks, sizeof(*w.edge)),
              .state = calloc((size_t)(unsigned)d->ranks, sizeof(*w.state))};
    if (w.path != NULL && w.edge != NULL && w.state != NULL) {
        for (int r = 0; r < d->ranks; r++) {
            if (w.state[r] == UNSEEN && is_standing(d, r) && walk_from(d, &w, r)) break;
        }
    }
    free(w.path);
    free(w.edge);
    free(w.state);
}

// ---- slow ranks ---------------------------------------------------------------------------------
static int compare_i64(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

// Returns the sorted positive values of `field`, or NULL without memory. The caller frees them.
static int64_t *sorted(const detector *d, int64_t (*field)(const control_report *), int *count)
{
    int64_t *values = calloc((size_t)(unsigned)d->ranks, sizeof(*values));
    *count = 0;
    if (values == NULL) return NULL;
    for (int r = 0; r < d->ranks; r++) {
        const int64_t x = field(&d->seen[r].report);
        if (d->seen[r].is_here && !d->seen[r].is_gone && x > 0) values[(*count)++] = x;
    }
    qsort(values, (size_t)(unsigned)*count, sizeof(*values), compare_i64);
    return values;
}

static int64_t own_ns(const control_report *r)
{
    return r->own_ns;
}

static int64_t step_ns(const control_report *r)
{
    return r->step_ns;
}

static int64_t median_step_ns(const detector *d)
{
    int count = 0;
    int64_t *values = sorted(d, step_ns, &count);
    const int64_t result = count == 0 ? 0 : values[(count - 1) / 2];
    free(values);
    return result;
}

// Compares each rank with the (lower) median of the others, so that of two ranks the slower one is
// compared with the faster one.
static void detect_slow(detector *d)
{
    int count = 0;
    int64_t *values = sorted(d, own_ns, &count);
    const int middle = (count - 2) / 2;
    for (int r = 0; r < d->ranks && count >= 2; r++) {
        control_seen *s = &d->seen[r];
        const bool is_new = s->report.step > s->checked_step;
        if (!s->is_here || s->is_gone || !is_new || s->report.own_ns <= 0) continue;
        s->checked_step = s->report.step;
        const int64_t usual = values[middle + (s->report.own_ns <= values[middle])];
        const double ratio = (double)s->report.own_ns / (double)usual;
        s->slow_steps = ratio > d->limits->slow_ratio ? s->slow_steps + 1 : 0;
        if (s->slow_steps == d->limits->slow_steps) {
            (void)suspect(
                d, r, CONTROL_SLOW,
                "rank %d (%s) is slow: it took %.0f%% more time than its peers for the same "
                "work in the last %d steps",
                r, s->host, 100.0 * (ratio - 1.0), s->slow_steps);
        }
    }
    free(values);
}

int control_detect_failures(control_seen *seen, int ranks, uint64_t here, int64_t now,
                            int64_t late_ns, const control_limits *limits, control_finding *out,
                            int capacity)
{
    ASSERT(ranks > 0 && capacity > 0 && late_ns >= 0);
    detector d = {.seen = seen,
                  .ranks = ranks,
                  .here = here,
                  .now = now,
                  .late = late_ns,
                  .limits = limits,
                  .out = out,
                  .capacity = capacity};
    detect_silence(&d);
    d.stuck_after = limits->stuck_ns + (int64_t)(limits->stuck_steps * (double)median_step_ns(&d));
    if (d.count == 0) detect_stuck(&d);
    if (d.count == 0) detect_left(&d);
    if (d.count == 0) detect_cycles(&d);
    detect_slow(&d);
    return d.count;
}

// ---- diverged ranks -----------------------------------------------------------------------------
void control_history_add(control_history *h, int rank, const control_report *report, int64_t now)
{
    if (report->sequence == 0) return;
    const int64_t at = (int64_t)(report->sequence % CONTROL_HISTORY);
    if (h->rows[at].sequence > report->sequence) return; // too old to compare
    if (h->rows[at].sequence < report->sequence) {
        memset(&h->rows[at], 0, sizeof(h->rows[at]));
        h->rows[at].sequence = report->sequence;
        h->rows[at].value[0] = report->fingerprint;
        h->rows[at].first[0] = rank;
    }
    const int side = report->fingerprint == h->rows[at].value[0] ? 0 : 1;
    if (side == 1 && h->rows[at].count[1] == 0) {
        h->rows[at].value[1] = report->fingerprint;
        h->rows[at].first[1] = rank;
        h->rows[at].differs_at = now;
    }
    h->rows[at].count[side]++;
    if (rank < h->rows[at].first[side]) h->rows[at].first[side] = rank;
}

bool control_history_check(control_history *h, const control_seen *seen, int ranks, int64_t now,
                           control_finding *out)
{
    for (int i = 0; i < CONTROL_HISTORY; i++) {
        if (h->rows[i].count[1] == 0 || h->rows[i].is_told) continue;
        const int32_t *count = h->rows[i].count, *first = h->rows[i].first;
        if (count[0] + count[1] < ranks && now - h->rows[i].differs_at < DIVERGED_WAIT_NS) continue;
        h->rows[i].is_told = true;
        // The minority is at fault; of two halves, the one without the lowest rank.
        const int odd = count[0] != count[1] ? (count[1] < count[0]) : (first[1] > first[0]);
        const int rank = first[odd], other = first[1 - odd];
        out->rank = rank;
        out->verdict = CONTROL_DIVERGED;
        (void)snprintf(out->text, sizeof(out->text),
                       "ranks differ at #%llu: rank %d (%s) has fingerprint %016llx, rank %d (%s) "
                       "and %d more have %016llx",
                       (unsigned long long)h->rows[i].sequence, rank, seen[rank].host,
                       (unsigned long long)h->rows[i].value[odd], other, seen[other].host,
                       count[1 - odd] - 1, (unsigned long long)h->rows[i].value[1 - odd]);
        return true;
    }
    return false;
}
