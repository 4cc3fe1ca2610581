// resilience.buddy.ranks: copies of the state in the memory of the ranks' processes.
//
//   rank 0 [own 0][lone 3]   rank 1 [own 1][lone 0]   rank 2 [own 2][lone 1]   rank 3 ...
//
// After a step each rank copies its pieces into its own process, and sends those that no other rank
// holds to its buddy: the next rank in another failure domain (another host if there are several,
// else another process). There are two generations, of which one is complete everywhere
// (train/buddy.h).
//
// Processes outlive their sessions (resilience.mode = live). The ranks of the next epoch bring the
// newest complete generation together (checkpoint/shard.h), in any layout, without a file.
#include "base/fault.h"
#include "train/buddy.h"
#include "train/session.h"

#include <stdio.h>

enum { GENERATIONS = PROCESS_GENERATIONS };

static train_process *buddies_of(const session *s)
{
    const bool has = s->memory.order != NULL && s->r->resilience.buddy.ranks > 0;
    return has && s->ranks.hosts != NULL ? s->memory.order->process : NULL;
}

// As many as the host with the most ranks has.
status session_buddy_domain(const session *s, int64_t *out)
{
    *out = 1;
    if (buddies_of(s) == NULL) return ST_OK;
    int local = comm_local_ranks(s->ranks.all);
    TRY(session_agree(s, &local, "ranks of a host"));
    *out = local < comm_ranks(s->ranks.all) ? local : 1;
    return ST_OK;
}

static status sharder_make(session *s)
{
    const int64_t ranks = comm_ranks(s->ranks.all);
    buddy_route *x = NULL;
    if (s->buddy.sharder != NULL) return ST_OK;
    TRY(arena_new(s->a, 1, &x));
    *x = (buddy_route){.all = s->ranks.all,
                       .group = s->ranks.hosts,
                       .ranks = ranks,
                       .rank = comm_rank(s->ranks.all),
                       .apart = s->options.domain};
    TRY(ckpt_sharder_create(&s->job.state, s->a, ranks, x->apart, &s->buddy.sharder));
    const comm_memory *memory = s->job.shared.memory;
    if (memory != NULL) ckpt_sharder_memory(s->buddy.sharder, comm_memory_at(memory));
    TRY(arena_new(s->a, ranks, &x->bytes));
    TRY(arena_new(s->a, 2 * ranks, &x->counts));
    for (int64_t r = 0; r < ranks; r++) {
        x->bytes[r] = ckpt_sharder_lone_bytes(s->buddy.sharder, r);
        x->is_lone = x->is_lone || (x->bytes[r] > 0 && ranks > 1);
    }
    s->buddy.route = x;
    return ST_OK;
}

// Values that are compared must not have been used before; a replay runs steps that change nothing.
static bool may_overlap(const session *s)
{
    return s->job.shared.memory != NULL && s->r->sdc.digests == 0 && s->replay == NULL &&
           !s->objective.is_watched && s->shares == NULL && s->job.ranks.lender == NULL;
}

// Finds the places in the plans of steps; *can: there are such in all plans of all ranks.
static status plans_find(session *s, buddy_plan **out, int64_t *count, bool *can)
{
    const plan_mesh mesh = session_mesh(s);
    buddy_plan *plans = NULL;
    bool *rows = NULL;
    int cannot = !may_overlap(s);
    TRY(arena_new(s->a, s->plans.run.count + 1, &rows));
    TRY(arena_new(s->a, s->plans.count, &plans));
    ckpt_sharder_rows(s->buddy.sharder, rows);
    for (int64_t i = 0; i < s->plans.count && !cannot; i++) {
        const plan *p = s->plans.all[i];
        bool copies = false;
        TRY(buddy_can_copy(s->a, p, &mesh, rows, &plans[*count], &copies));
        cannot = !copies;
        *count += p->purpose == PURPOSE_TRAIN;
    }
    TRY(session_agree(s, &cannot, "copies during a step"));
    *out = plans;
    *can = !cannot && *count > 0;
    return ST_OK;
}

// A group that the copier alone uses.
static status group_make(session *s)
{
    enum { NUMBER = 255 }; // those of plans are smaller
    const int ranks = comm_ranks(s->ranks.all);
    int32_t *members = NULL;
    if (!s->buddy.route->is_lone) return ST_OK;
    TRY(arena_new(s->a, ranks, &members));
    for (int32_t r = 0; r < ranks; r++) members[r] = r;
    return comm_group_create(s->ranks.all, members, ranks, NUMBER, "copies", &s->buddy.group);
}

static status copier_make(session *s)
{
    buddy_plan *plans = NULL;
    int64_t count = 0;
    bool can = false;
    TRY(plans_find(s, &plans, &count, &can));
    if (!can) return ST_OK;
    TRY(group_make(s));
    buddy_route route = *s->buddy.route;
    route.group = s->buddy.group;
    const buddy_config c = {.sharder = s->buddy.sharder,
                            .process = buddies_of(s),
                            .e = s->job.e,
                            .plans = plans,
                            .count = count,
                            .memory = comm_memory_at(s->job.shared.memory),
                            .every = s->r->resilience.buddy.ranks,
                            .step = s->step,
                            .tokens = s->tokens,
                            .route = route};
    return buddy_copier_create(&c, s->a, &s->buddy.copier);
}

// A process that is new has no copies, so until it has, the loss of one more rank could be the loss
// of the state.
static status loaded_copy(session *s)
{
    const ckpt_info info = session_info(s);
    if (s->buddy.copier == NULL) return session_buddy_save(s, true);
    buddy_copier_begin(s->buddy.copier, &info, s->fork);
    return ST_OK;
}

status session_buddy_open(session *s)
{
    train_process *b = buddies_of(s);
    if (b == NULL) return ST_OK;
    TRY(sharder_make(s));
    for (int i = 0; i < GENERATIONS && s->buddy.route->is_lone; i++) {
        TRY(ckpt_shard_share(&b->own[i], s->ranks.all));
    }
    TRY(copier_make(s));
    return s->buddy.is_due ? loaded_copy(s) : ST_OK;
}

bool session_buddy_overlaps(const session *s)
{
    return s->buddy.copier != NULL;
}

void session_buddy_before(session *s, int64_t step, int64_t sequences)
{
    if (s->buddy.copier == NULL) return;
    ckpt_info info = session_info(s);
    info.step = step;
    info.sequences = s->sequences + sequences;
    buddy_copier_info(s->buddy.copier, &info, s->fork);
}

status session_buddy_see(session *s)
{
    int64_t newest = -1;
    return s->buddy.copier != NULL ? buddy_copier_see(s->buddy.copier, false, &newest) : ST_OK;
}

status session_buddy_error(session *s, status st)
{
    return s->buddy.copier != NULL ? buddy_copier_error(s->buddy.copier, st) : st;
}

void session_buddy_rest(session *s)
{
    if (s->buddy.copier != NULL) buddy_copier_rest(s->buddy.copier);
}

// The device keeps the state of the newest copy unless a later update has begun.
static void copier_end(session *s, train_process *b)
{
    buddy_copier *c = s->buddy.copier;
    int64_t newest = -1;
    if (c == NULL) return;
    buddy_copier_stop(c);
    exec_settle(s->job.e);
    buddy_copier_close(c);
    if (buddy_copier_see(c, true, &newest) != ST_OK) error_clear();
    if (newest > b->state_step) {
        b->state_key = s->plan_key;
        b->state_step = newest;
    }
    buddy_copier_destroy(c);
    s->buddy.copier = NULL;
}

void session_buddy_close(session *s)
{
    train_process *b = buddies_of(s);
    if (b == NULL) return;
    copier_end(s, b);
    comm_group_destroy(s->buddy.group);
    s->buddy.group = NULL;
    for (int i = 0; i < GENERATIONS; i++) {
        if (ckpt_shard_share(&b->own[i], NULL) != ST_OK) error_clear();
    }
}

status session_buddy_save(session *s, bool in_any_case)
{
    train_process *b = buddies_of(s);
    if (b == NULL || (!in_any_case && s->step % s->r->resilience.buddy.ranks != 0)) return ST_OK;
    const ckpt_info info = session_info(s);
    int64_t newest = -1;
    if (s->buddy.copier != NULL) TRY(buddy_copier_see(s->buddy.copier, true, &newest));
    if (newest == s->step) { // it was taken; an evaluation may have come since
        ckpt_shard *taken = &b->own[(b->next + GENERATIONS - 1) % GENERATIONS];
        if (taken->used > 0) ckpt_sharder_label(s->buddy.sharder, &info, s->fork, taken);
        session_process_holds(s);
        return ST_OK;
    }
    ckpt_shard *own = &b->own[b->next], *lone = &b->lone[b->next];
    own->used = lone->used = 0; // a rank that ends here has the other generation
    TRY(fault_point("train.buddy.save"));
    TRY(ckpt_sharder_copy(s->buddy.sharder, NULL, own));
    ckpt_sharder_label(s->buddy.sharder, &info, s->fork, own);
    // A value that has changed since the step must be in no copy.
    TRY(session_replicas_check(s, true));
    ckpt_shard_count(own);
    TRY(fault_point("train.buddy.save"));
    // All ranks meet again before the next copy.
    TRY(buddy_exchange(s->buddy.route, s->step, own, lone));
    b->next = (b->next + 1) % GENERATIONS;
    if (s->buddy.copier != NULL) buddy_copier_has(s->buddy.copier, s->step);
    session_process_holds(s);
    return ST_OK;
}

static void damage_say(const session *s, const ckpt_shard *k, bool is_damaged, const char *whose)
{
    if (!is_damaged && (k->used == 0 || ckpt_shard_step(k) >= 0)) return;
    session_say(s, LOG_WARN, "a copy of %s in the memory of rank %d is damaged and is not used",
                whose, comm_rank(s->ranks.all));
}

// Whether a loss came while copies of the state that was loaded were made: some rank has its own
// piece, and had still to get another rank's. Collective.
static status is_cut_short(const session *s, const train_process *b, const ckpt_entry *loaded,
                           int *out)
{
    *out = 0;
    for (int i = 0; i < GENERATIONS; i++) {
        const ckpt_entry own = ckpt_shard_entry(&b->own[i]);
        const bool is_half = own.step == loaded->step && own.fork == loaded->fork;
        const ckpt_shard *other = &b->lone[(i + 1) % GENERATIONS];
        if (is_half && b->lone[i].used == 0 && other->used > 0) *out = 1;
    }
    return session_agree(s, out, "copies that were cut short");
}

// The next copy does not overwrite the state that was loaded, which other ranks may need again; or,
// if its copies were cut short, the one before it, of which every rank has all. A newer one that
// was not complete is forgotten: the steps after this one may get other bits.
static void generation_choose(train_process *b, const ckpt_entry *loaded, bool is_cut)
{
    for (int i = 0; i < GENERATIONS; i++) {
        ckpt_shard *both[] = {&b->own[i], &b->lone[i]};
        for (int k = 0; k < COUNT_OF(both); k++) {
            const ckpt_entry e = ckpt_shard_entry(both[k]);
            if (e.step < 0 || e.fork != loaded->fork) continue;
            if (e.step > loaded->step) both[k]->used = 0;
            if (is_cut ? e.step < loaded->step : e.step == loaded->step) {
                b->next = (i + 1) % GENERATIONS;
            }
        }
    }
}

status session_buddy_load(session *s, const ckpt_entry *newest, const ckpt_entry *saved,
                          bool *is_loaded)
{
    const train_process *b = buddies_of(s);
    const ckpt_shard *have[2 * GENERATIONS];
    ckpt_info info;
    ckpt_gathered found;
    *is_loaded = false;
    if (b == NULL || s->memory.order->epoch == 0) return ST_OK;
    TRY(sharder_make(s));
    for (int i = 0; i < GENERATIONS; i++) {
        have[2 * i] = &b->own[i];
        have[2 * i + 1] = &b->lone[i];
    }
    TRY(ckpt_shards_load(s->buddy.sharder, have, COUNT_OF(have), newest, s->a, &info, &found));
    for (int i = 0; i < COUNT_OF(have); i++) {
        const bool is_damaged = (found.damaged >> i & 1U) != 0;
        damage_say(s, have[i], is_damaged, i % 2 == 0 ? "its own state" : "another rank's state");
    }
    if (found.entry.step < 0) return ST_OK;
    *is_loaded = true;
    int is_cut = 0;
    TRY(is_cut_short(s, b, &found.entry, &is_cut));
    generation_choose(s->memory.order->process, &found.entry, is_cut != 0);
    s->buddy.is_due = (found.needy > 0 || is_cut != 0) && s->buddy.route->is_lone;
    s->fork = max_i64(s->fork, found.entry.fork);
    const int64_t step = found.entry.step;
    s->saved_step = saved != NULL && saved->step == step ? step : -1; // on the disk
    TRY(session_follow(s, &info, saved != NULL ? saved->path : ""));
    if (session_is_first(s)) {
        session_say(s, LOG_INFO,
                    "step %lld came from the memory of the ranks; no file was read%s, and %d of "
                    "%d ranks got pieces from others",
                    (long long)s->step, found.was_held ? "; it was still in place here" : "",
                    found.needy, comm_ranks(s->ranks.all));
    }
    return ST_OK;
}
