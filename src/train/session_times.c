// The times of all ranks, which travel with their word about a stop after each step, and the slow
// ranks that the first rank finds in them.
#include "train/session_health.h"

#include <stdio.h>

struct rank_word {
    int64_t stop;
    straggler_times times;
    int64_t slow_rank; // of the first rank: found in the words before; -1: none
    double slow_ratio;
    int64_t health; // findings about its GPU, a bit each
    rank_repairs repairs;
};
typedef struct rank_word rank_word;

// Stages of a pipeline and experts are not equal work; nor are the copies in memory, which a thread
// of rank 0 writes. Times of uneven shares are compared for one sequence.
static bool is_equal_work(const run_config *r)
{
    return r->resilience.mode == RUN_RESILIENCE_OFF && r->layout.pp == 1 && r->layout.ep <= 1;
}

status session_times_open(session *s)
{
    if (s->ranks.all == NULL) return ST_OK;
    rank_word *words = NULL;
    const int64_t ranks = comm_ranks(s->ranks.all);
    TRY(arena_new(s->a, ranks, &words));
    s->times.words = words;
    TRY(arena_new(s->a, ranks, &s->times.all));
    s->move.rank = s->move.slow_rank = -1;
    if (!session_is_first(s) || s->r->resilience.straggler == RUN_STRAGGLER_OFF) return ST_OK;
    TRY(stragglers_create(s->a, ranks, is_equal_work(s->r), &s->times.slow));
    session_shares_known(s, s->times.slow);
    return ST_OK;
}

void session_times_put(session *s, const obs_record *record, double seconds, int64_t data_ns)
{
    const int64_t step = (int64_t)(seconds * 1e9);
    const int64_t network = (int64_t)(record->comm_exposed * seconds * 1e9);
    const int64_t data = min_i64(data_ns, step);
    s->times.own = (straggler_times){.step = max_i64(step, 1),
                                     .compute = max_i64(step - network - data, 0),
                                     .data = data,
                                     .network = network,
                                     .disk = s->times.disk_ns};
    s->times.disk_ns = 0;
}

static status slow_tell(session *s, const straggler *x)
{
    text line = {.a = s->a};
    char who[64] = "the network";
    const char *cause = straggler_cause_name(x->cause);
    const char *of =
        x->rank < 0 || x->cause == STRAGGLER_DISK ? "as before" : "as that of its peers";
    if (x->rank >= 0) (void)snprintf(who, sizeof(who), "rank %lld", (long long)x->rank);
    if (x->is_well) {
        session_say(s, LOG_INFO, "%s is faster again in the %lld steps up to %lld", who,
                    (long long)x->steps, (long long)s->step);
        return ST_OK;
    }
    session_say(s, LOG_WARN,
                "%s is slow in the %lld steps up to %lld: %s took %.1f times as long %s", who,
                (long long)x->steps, (long long)s->step, cause, x->ratio, of);
    TRY(text_add(&line,
                 "{\"step\": %lld, \"event\": \"straggler\", \"rank\": %lld, \"epoch\": %lld, "
                 "\"times\": %.2f, \"cause\": \"%s\"}\n",
                 (long long)s->step, (long long)x->rank,
                 (long long)(s->memory.order != NULL ? s->memory.order->epoch : 0), x->ratio,
                 cause));
    return session_event(s, &line);
}

status session_words_swap(session *s, int *stop)
{
    const uint32_t findings = session_health_look(s);
    const rank_repairs repairs = session_checks_own(s);
    if (s->ranks.hosts == NULL) {
        TRY(session_checks_see(s, 0, &repairs));
        return session_health_hear(s, 0, findings);
    }
    const rank_word mine = {.stop = *stop,
                            .times = s->times.own,
                            .slow_rank = s->move.rank,
                            .slow_ratio = s->move.ratio,
                            .health = findings,
                            .repairs = repairs};
    rank_word *words = s->times.words;
    const int64_t ranks = comm_ranks(s->ranks.all);
    TRY(session_gather(s, &mine, words, (int64_t)sizeof(mine), "stop"));
    s->times.own = (straggler_times){0};
    for (int64_t r = 0; r < ranks; r++) {
        if (words[r].stop > *stop) *stop = (int)words[r].stop;
        TRY(session_checks_see(s, r, &words[r].repairs));
        s->times.all[r] = words[r].times;
        if (s->times.slow == NULL) continue;
        straggler_times *t = &s->times.all[r];
        t->compute = (int64_t)((double)t->compute * session_shares_scale(s, r));
    }
    session_shares_take(s, words[0].slow_rank, words[0].slow_ratio);
    for (int64_t r = 0; r < ranks; r++) {
        TRY(session_health_hear(s, r, (uint32_t)words[r].health));
    }
    straggler found;
    if (s->times.slow == NULL || !stragglers_see(s->times.slow, s->times.all, &found)) return ST_OK;
    session_shares_found(s, &found);
    return slow_tell(s, &found);
}

status session_outside_tell(session *s)
{
    const int64_t predicted = s->options.outside_bytes;
    const int64_t measured = exec_outside_bytes(s->job.e);
    char here[32], there[32];
    if (predicted == 0 || measured == 0 || !session_is_first(s)) return ST_OK;
    session_say(s, LOG_INFO, "context, code and libraries of the GPU took %s; %s were predicted",
                text_bytes_human(measured, here), text_bytes_human(predicted, there));
    if (s->metrics == NULL) return ST_OK;
    text line = {.a = s->a};
    TRY(text_add(&line,
                 "{\"step\": %lld, \"event\": \"gpu_context\", \"bytes\": %lld, "
                 "\"predicted_bytes\": %lld}\n",
                 (long long)s->step, (long long)measured, (long long)predicted));
    return session_event(s, &line);
}

status session_graphs_tell(session *s)
{
    const exec_graphs g = exec_graphs_of(s->job.e);
    const int64_t steps = g.replayed + g.prepared + g.refused;
    if (steps == 0 || !session_is_first(s)) return ST_OK;
    const double busy = (double)s->busy_ns;
    const double idle = busy > 0.0 ? fmax(0.0, 1.0 - (double)g.posting_ns / busy) : 0.0;
    session_say(s, LOG_INFO,
                "%lld of %lld steps and evaluations were one launch of a graph%s%s; the host was "
                "idle for %.1f%% of the time",
                (long long)g.replayed, (long long)steps,
                g.refused > 0 ? "; others were posted call by call: " : "",
                g.refused > 0 ? g.why : "", 100.0 * idle);
    if (s->metrics == NULL) return ST_OK;
    text line = {.a = s->a};
    TRY(text_add(&line,
                 "{\"step\": %lld, \"event\": \"graphs\", \"replayed\": %lld, \"prepared\": %lld, "
                 "\"refused\": %lld, \"why\": ",
                 (long long)s->step, (long long)g.replayed, (long long)g.prepared,
                 (long long)g.refused));
    TRY(text_add_json(&line, g.why != NULL ? g.why : ""));
    TRY(text_add(&line, ", \"host_idle\": %.4f}\n", idle));
    return session_event(s, &line);
}
