// A job in one thread: a hub, its members, and the bytes between them in virtual time. Bytes arrive late and
// cut anywhere, as a seed picks; ranks can be killed, stopped and cut off; bits can be flipped on the way.
#ifndef CONTROL_JOB_FIXTURE_H
#define CONTROL_JOB_FIXTURE_H

#include "base/rng.h"
#include "control/machine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { JOB_RANKS_MAX = 16, JOB_NOTICES_MAX = 256, WIRE_MAX = 1 << 20 };
static const int64_t MS = 1000000;

typedef struct wire { // one direction
    uint8_t *bytes;
    int64_t count;
} wire;

typedef struct job_rank {
    control_member *m;
    int line; // the hub's number; -1: not connected
    bool is_stopped, is_killed, is_cut, retries;
    wire up, down;
    control_notice notices[JOB_NOTICES_MAX];
    int notice_count;
} job_rank;

typedef struct job {
    host h;
    control_hub *hub;
    control_hub_config hub_config;
    int ranks, count; // count: members, which may exceed the ranks (impostors)
    job_rank r[JOB_RANKS_MAX];
    int hub_holder; // whose stopping stops the hub; -1
    bool is_hub_stopped;
    int64_t now;
    uint64_t seed, draws;
    control_notice notices[JOB_NOTICES_MAX];
    int notice_count;
    int64_t flip_at, passed; // bytes that crossed; the one whose bit is flipped, or -1
    int flip_bit;
    int64_t delay_percent; // of moments in which a wire stands still
} job;

static inline uint32_t job_draw(job *j, uint32_t below)
{
    return rng_word(j->seed, 7, j->draws++) % below;
}

static uint64_t fixture_random;
static status fixture_random_fill(const host *h, void *buffer, int64_t bytes)
{
    (void)h;
    for (int64_t i = 0; i < bytes; i++) {
        ((uint8_t *)buffer)[i] = (uint8_t)rng_word(99, 1, fixture_random++);
    }
    return ST_OK;
}

static host_api fixture_api;

static inline control_key *job_key(uint8_t first)
{
    uint8_t bytes[CONTROL_KEY_BYTES];
    control_key *k = NULL;
    for (int i = 0; i < CONTROL_KEY_BYTES; i++) bytes[i] = (uint8_t)(first + i);
    assert_int_equal(control_key_copy(bytes, &k), ST_OK);
    return k;
}

static inline void job_init(job *j, int ranks, const control_key *key, uint64_t seed)
{
    memset(j, 0, sizeof(*j));
    fixture_api = *host_real()->api;
    fixture_api.random_fill = fixture_random_fill;
    j->h.api = &fixture_api;
    j->ranks = ranks;
    j->seed = seed;
    j->flip_at = -1;
    j->now = 1000 * MS;
    j->delay_percent = 30;
    j->hub_config = (control_hub_config){.h = &j->h,
                                         .key = key,
                                         .job = 0xabc,
                                         .epoch = 3,
                                         .ranks = ranks,
                                         .self = {.host = "n0", .machine = 1, .pid = 100}};
}

static inline void job_start_hub(job *j)
{
    assert_int_equal(control_hub_create(&j->hub_config, j->now, &j->hub), ST_OK);
}

static inline control_member_config job_config(job *j, int rank)
{
    control_member_config c = {.h = &j->h,
                               .key = j->hub_config.key,
                               .job = 0xabc,
                               .epoch = 3,
                               .rank = rank,
                               .ranks = j->ranks,
                               .self = {.machine = 1, .pid = 100 + rank, .started = 5}};
    const char host_name[3] = {'n', (char)('0' + rank % 10), '\0'};
    memcpy(c.self.host, host_name, sizeof(host_name));
    return c;
}

static inline void job_connect(job *j, int i)
{
    job_rank *r = &j->r[i];
    r->up.count = r->down.count = 0;
    r->line = control_hub_accept(j->hub, j->now);
    const control_event opened = {.kind = CONTROL_OPENED};
    const control_event closed = {.kind = CONTROL_CLOSED};
    control_member_feed(r->m, &opened, j->now);
    if (r->line < 0) control_member_feed(r->m, &closed, j->now);
}

static inline int job_add(job *j, const control_member_config *c)
{
    assert_true(j->count < JOB_RANKS_MAX);
    job_rank *r = &j->r[j->count];
    r->up.bytes = malloc(WIRE_MAX);
    r->down.bytes = malloc(WIRE_MAX);
    assert_int_equal(control_member_create(c, j->now, &r->m), ST_OK);
    job_connect(j, j->count);
    return j->count++;
}

static inline void job_deinit(job *j)
{
    for (int i = 0; i < j->count; i++) {
        control_member_destroy(j->r[i].m);
        free(j->r[i].up.bytes);
        free(j->r[i].down.bytes);
    }
    control_hub_destroy(j->hub);
}

static inline void wire_fill(wire *w, control_span s, int64_t *taken)
{
    *taken = min_i64(s.bytes, WIRE_MAX - w->count);
    if (*taken > 0) memcpy(w->bytes + w->count, s.data, (size_t)*taken);
    w->count += *taken;
}

// Takes a piece off the wire into `piece`.
static inline int64_t wire_drain(job *j, wire *w, uint8_t *piece, int64_t limit)
{
    if (w->count == 0 || job_draw(j, 100) < (uint32_t)j->delay_percent) return 0;
    int64_t count = 1 + job_draw(j, 2) * job_draw(j, (uint32_t)limit);
    count = min_i64(min_i64(count, limit), w->count);
    memcpy(piece, w->bytes, (size_t)count);
    w->count -= count;
    memmove(w->bytes, w->bytes + count, (size_t)w->count);
    if (j->flip_at >= j->passed && j->flip_at < j->passed + count) {
        piece[j->flip_at - j->passed] ^= (uint8_t)(1 << j->flip_bit);
    }
    j->passed += count;
    return count;
}

static inline void job_move(job *j, int i)
{
    static uint8_t piece[40000];
    job_rank *r = &j->r[i];
    int64_t taken = 0;
    if (r->line < 0) return;
    if (!r->is_stopped && !r->is_killed) {
        wire_fill(&r->up, control_member_output(r->m), &taken);
        control_member_sent(r->m, taken);
    }
    if (!j->is_hub_stopped) {
        wire_fill(&r->down, control_hub_output(j->hub, r->line), &taken);
        control_hub_sent(j->hub, r->line, taken);
    }
    if (r->is_cut) return;
    const int64_t up = j->is_hub_stopped ? 0 : wire_drain(j, &r->up, piece, sizeof(piece));
    if (up > 0) {
        const control_event e = {
            .kind = CONTROL_BYTES, .connection = r->line, .bytes = piece, .count = up};
        control_hub_feed(j->hub, &e, j->now);
    }
    const int64_t down =
        r->is_stopped || r->is_killed ? 0 : wire_drain(j, &r->down, piece, sizeof(piece));
    if (down > 0) {
        const control_event e = {.kind = CONTROL_BYTES, .bytes = piece, .count = down};
        control_member_feed(r->m, &e, j->now);
    }
    const bool ends = control_hub_drops(j->hub, r->line) && r->down.count == 0 &&
                      control_hub_output(j->hub, r->line).bytes == 0;
    if (ends || (r->is_killed && r->up.count == 0)) {
        const control_event e = {.kind = CONTROL_CLOSED, .connection = r->line};
        if (!r->is_stopped && !r->is_killed) control_member_feed(r->m, &e, j->now);
        control_hub_feed(j->hub, &e, j->now);
        r->line = -1;
    }
}

// One moment: 1 to 5 ms.
static inline void job_step(job *j)
{
    const control_event tick = {.kind = CONTROL_TICK};
    j->now += (1 + job_draw(j, 5)) * MS;
    for (int k = 0; k < j->count; k++) job_move(j, (int)job_draw(j, (uint32_t)j->count));
    if (!j->is_hub_stopped && j->now >= control_hub_wake(j->hub)) {
        control_hub_feed(j->hub, &tick, j->now);
    }
    for (int i = 0; i < j->count; i++) {
        job_rank *r = &j->r[i];
        if (r->is_stopped || r->is_killed) continue;
        if (j->now >= control_member_wake(r->m)) control_member_feed(r->m, &tick, j->now);
        if (r->retries && control_member_may_retry(r->m)) {
            control_member_reset(r->m, j->now);
            job_connect(j, i);
        }
        while (r->notice_count < JOB_NOTICES_MAX &&
               control_member_notice(r->m, &r->notices[r->notice_count])) {
            r->notice_count++;
        }
    }
    while (j->notice_count < JOB_NOTICES_MAX &&
           control_hub_notice(j->hub, &j->notices[j->notice_count])) {
        j->notice_count++;
    }
}

static inline void job_run(job *j, int64_t duration)
{
    const int64_t until = j->now + duration;
    while (j->now < until) job_step(j);
}

// The process is gone: its connection ends, and its machine's other ranks know at once.
static inline void job_kill(job *j, int rank, bool is_seen)
{
    const control_event e = {.kind = CONTROL_EXITED, .rank = rank};
    j->r[rank].is_killed = true;
    j->r[rank].up.count = 0;
    for (int i = 0; is_seen && i < j->count; i++) {
        if (!j->r[i].is_killed && !j->r[i].is_stopped) control_member_feed(j->r[i].m, &e, j->now);
    }
}

static inline bool job_is_in(const job *j, control_state s)
{
    for (int i = 0; i < j->count; i++) {
        if (!j->r[i].is_killed && control_member_state(j->r[i].m) != s) return false;
    }
    return true;
}

static inline const control_notice *job_verdict(const job_rank *r, int rank)
{
    for (int i = 0; i < r->notice_count; i++) {
        if (r->notices[i].kind == CONTROL_NOTE_VERDICT && r->notices[i].rank == rank) {
            return &r->notices[i];
        }
    }
    return NULL;
}

static inline bool job_said(const job *j, const char *words)
{
    for (int i = 0; i < j->notice_count; i++) {
        if (strstr(j->notices[i].text, words) != NULL) return true;
    }
    return false;
}

#endif
