// resilience.buddy.ranks: copies of the state in the memory of the ranks' processes.
//
//   rank 0 [own 0][lone 3]   rank 1 [own 1][lone 0]   rank 2 [own 2][lone 1]   rank 3 ...
//
// After a step each rank copies its pieces into its own process, and sends those that no other rank
// holds to its buddy: the next rank in another failure domain (another host if there are several,
// else another process). There are two generations. A rank ends a copy only after its buddy has
// it, so the ranks are at most one generation apart and one of them is complete everywhere.
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

// Ranks in a row that fail together: as many as the host with the most ranks has.
static status domain_find(session *s)
{
    int local = comm_local_ranks(s->ranks.all);
    TRY(session_agree(s, &local, "ranks of a host"));
    s->buddy.domain = local < comm_ranks(s->ranks.all) ? local : 1;
    return ST_OK;
}

static status sharder_make(session *s)
{
    const int64_t ranks = comm_ranks(s->ranks.all);
    if (s->buddy.sharder != NULL) return ST_OK;
    TRY(domain_find(s));
    TRY(ckpt_sharder_create(&s->job.state, s->a, ranks, s->buddy.domain, &s->buddy.sharder));
    const comm_memory *memory = s->job.shared.memory;
    if (memory != NULL) ckpt_sharder_memory(s->buddy.sharder, comm_memory_at(memory));
    TRY(arena_new(s->a, ranks, &s->buddy.bytes));
    for (int64_t r = 0; r < ranks; r++) {
        s->buddy.bytes[r] = ckpt_sharder_lone_bytes(s->buddy.sharder, r);
        s->buddy.is_lone = s->buddy.is_lone || s->buddy.bytes[r] > 0;
    }
    return ST_OK;
}

// The rest of a step writes into what is copied: residuals of compression, scales of fp8, loads of
// experts. Values that are compared must not have been used before.
static bool can_overlap(const session *s)
{
    return s->job.shared.memory != NULL && !s->buddy.is_lone && s->r->sdc.digests == 0 &&
           s->replay == NULL && !s->objective.is_watched && s->plans.codec.codec == NULL &&
           s->r->train.precision != RUN_FP8 && s->plans.model->load_layers == 0 &&
           s->shares == NULL && s->job.ranks.lender == NULL;
}

static status copier_make(session *s)
{
    const plan **plans = NULL;
    int64_t count = 0;
    TRY(arena_new(s->a, s->plans.count, &plans));
    for (int64_t i = 0; i < s->plans.count; i++) {
        if (s->plans.all[i]->purpose != PURPOSE_TRAIN) continue;
        if (!buddy_can_copy(s->plans.all[i])) return ST_OK;
        plans[count++] = s->plans.all[i];
    }
    const buddy_config c = {.sharder = s->buddy.sharder,
                            .process = buddies_of(s),
                            .e = s->job.e,
                            .plans = plans,
                            .count = count,
                            .memory = comm_memory_at(s->job.shared.memory),
                            .every = s->r->resilience.buddy.ranks,
                            .step = s->step,
                            .tokens = s->tokens};
    return buddy_copier_create(&c, s->a, &s->buddy.copier);
}

status session_buddy_open(session *s)
{
    if (buddies_of(s) == NULL) return ST_OK;
    TRY(sharder_make(s));
    return can_overlap(s) ? copier_make(s) : ST_OK;
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

// The device keeps the state of the newest copy unless a later update has begun.
void session_buddy_close(session *s)
{
    buddy_copier *c = s->buddy.copier;
    train_process *b = buddies_of(s);
    int64_t newest = -1;
    if (c == NULL) return;
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

// Sends the lone pieces to the buddy, and gets those of the rank whose buddy this one is.
static status lone_exchange(session *s, train_process *b, ckpt_shard *to)
{
    const int64_t ranks = comm_ranks(s->ranks.all), me = comm_rank(s->ranks.all);
    const int64_t apart = s->buddy.domain;
    const int64_t from = (me - apart + ranks) % ranks, buddy = (me + apart) % ranks;
    int64_t *counts = NULL;
    if (!s->buddy.is_lone || ranks == 1) return ST_OK;
    TRY(arena_new(s->a, 2 * ranks, &counts));
    counts[buddy] = s->buddy.bytes[me];
    counts[ranks + from] = s->buddy.bytes[from];
    TRY(ckpt_shard_reserve(to, max_i64(s->buddy.bytes[from], 1)));
    const comm_item item = {.in = b->sent.bytes, .out = to->bytes};
    const comm_args args = {.op = COLLECTIVE_ALL_TO_ALLV,
                            .type = DTYPE_U8,
                            .items = &item,
                            .item_count = 1,
                            .send_counts = counts,
                            .receive_counts = counts + ranks,
                            .tensor = "copies for buddies",
                            .site = __func__,
                            .step = s->step};
    TRY(comm_run(s->ranks.hosts, &args));
    to->used = s->buddy.bytes[from];
    return ST_OK;
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
        if (taken->used > 0) ckpt_sharder_mark(s->buddy.sharder, &info, s->fork, taken);
        session_process_holds(s);
        return ST_OK;
    }
    ckpt_shard *own = &b->own[b->next], *lone = &b->lone[b->next];
    own->used = lone->used = 0; // a rank that ends here has the other generation
    TRY(fault_point("train.buddy.save"));
    TRY(ckpt_sharder_take(s->buddy.sharder, &info, s->fork, own, &b->sent));
    // A value that has changed since the step must be in no copy.
    const int64_t taken = own->used;
    own->used = 0;
    TRY(session_replicas_check(s, true));
    TRY(fault_point("train.buddy.save"));
    TRY(lone_exchange(s, b, lone));
    own->used = taken;
    TRY(fault_point("train.buddy.save"));
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
