// sdc.abft: the ranks tell each other, with the words after each step, how many of their products
// were wrong once and right when they were computed again. The first rank tells people and
// metrics.jsonl. A product that is wrong twice ends the session with ST_CORRUPT.
#include "train/session.h"

status session_checks_open(session *s)
{
    kern_checks *checks = kern_context_checks(s->plans.kernels);
    if (checks == NULL) return ST_OK;
    const comm *all = s->ranks.all;
    kern_checks_begin(checks, all != NULL ? comm_rank(all) : 0);
    return arena_new(s->a, all != NULL ? comm_ranks(all) : 1, &s->repairs_told);
}

rank_repairs session_checks_own(const session *s)
{
    const kern_checks_facts f = kern_checks_read(kern_context_checks(s->plans.kernels));
    return (rank_repairs){.count = f.repaired, .last = f.last};
}

status session_checks_see(session *s, int64_t rank, const rank_repairs *x)
{
    if (s->repairs_told == NULL || x->count == s->repairs_told[rank]) return ST_OK;
    const int64_t more = x->count - s->repairs_told[rank];
    char what[KERN_HIT_BYTES];
    text line = {.a = s->a};
    s->repairs_told[rank] = x->count;
    if (!session_is_first(s)) return ST_OK;
    kern_hit_print(&x->last, what);
    session_say(s, LOG_WARN,
                "step %d: rank %lld computed %s (%s, off by %.3g where rounding explains %.3g) and "
                "right results when it computed again; a processor or memory of that rank has "
                "returned a wrong value, and no weight was changed by it",
                x->last.step, (long long)rank,
                more == 1 ? "a wrong product" : "several wrong products", what, x->last.off,
                x->last.limit);
    TRY(text_add(
        &line,
        "{\"step\": %d, \"event\": \"sdc\", \"rank\": %lld, \"epoch\": %lld, \"products\": "
        "%lld, \"tensor\": ",
        x->last.step, (long long)rank,
        (long long)(s->memory.order != NULL ? s->memory.order->epoch : 0), (long long)more));
    TRY(text_add_json(&line, what));
    TRY(text_add(&line, ", \"cause\": \"abft\"}\n"));
    return session_event(s, &line);
}

status session_checks_last(session *s)
{
    int stop = 0;
    if (s->repairs_told == NULL) return ST_OK;
    TRY(session_words_swap(s, &stop));
    const kern_checks_facts f = kern_checks_read(kern_context_checks(s->plans.kernels));
    session_say(s, LOG_INFO,
                "%lld of %lld products were checked: %lld were wrong and repaired, %lld were "
                "computed again because of rounding",
                (long long)f.checked, (long long)f.seen, (long long)f.repaired,
                (long long)(f.repeated - f.repaired));
    return ST_OK;
}
