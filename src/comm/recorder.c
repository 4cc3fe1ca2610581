// The flight recorder: writing, and reading without trust.
#include "comm/recorder.h"

#include "comm/recorder_write.h"

#include <stdio.h>
#include <string.h>

_Static_assert(sizeof(flight_record) == 128, "two cache lines");
_Static_assert((int)BLOCK_RECORDS == (int)COMM_RECORDS, "one number, two headers");
_Static_assert(sizeof(((flight_record *)0)->name) == (size_t)COMM_RECORD_NAME,
               "one number, two headers");

static uint64_t what_pack(const comm_contract *k, const comm_args *args)
{
    return (uint64_t)k->algorithm << 32 | (uint64_t)(uint8_t)args->type << 24 |
           (uint64_t)(uint8_t)args->order << 16 | (uint64_t)(uint8_t)args->reduction << 8 |
           (uint64_t)(uint8_t)args->op;
}

// It writes word by word into the place of the record. A record built elsewhere would be read back
// first, and every store delays that of the descriptor by a cycle. Words of the name behind its
// zero are not written.
flight_record *recorder_begin(rank_record *record, const comm_contract *k, const comm_args *args,
                              recorder_name tensor, int64_t posted_ns, int64_t begun_ns)
{
    const uint64_t number = 1 + __atomic_fetch_add(&record->record_count, 1, __ATOMIC_RELAXED);
    flight_record *at = &record->records[(number - 1) % BLOCK_RECORDS];
    word_put(&at->number, 0);
    word_put(&at->sequence, k->sequence);
    word_put(&at->count, (uint64_t)k->count);
    __atomic_store_n(&at->step, args->step, __ATOMIC_RELEASE);
    __atomic_store_n(&at->posted_ns, posted_ns, __ATOMIC_RELEASE);
    __atomic_store_n(&at->begun_ns, begun_ns, __ATOMIC_RELEASE);
    __atomic_store_n(&at->done_ns, 0, __ATOMIC_RELEASE);
    word_put(&at->where, (uint64_t)k->group << 32 | k->epoch);
    word_put(&at->what, what_pack(k, args));
    word_put(&at->peer, (uint32_t)args->root);
    words_copy_in(at->name, tensor.text, (int64_t)tensor.words * 8);
    word_put(&at->number, number);
    return at;
}

void recorder_end(flight_record *record, int64_t done_ns)
{
    __atomic_store_n(&record->done_ns, done_ns, __ATOMIC_RELEASE);
}

// ---- reading ------------------------------------------------------------------------------------
bool comm_recorder_rank(const comm_control_block *b, int local_rank, comm_rank_state *out)
{
    if (local_rank < 0 || local_rank >= b->local_ranks) return false;
    const rank_record *record = rank_record_of(b, local_rank);
    const uint32_t here = half_get(&record->here);
    *out = (comm_rank_state){0};
    if (here == 0) return true;
    out->pid = __atomic_load_n(&record->pid, __ATOMIC_RELAXED);
    out->rank = __atomic_load_n(&record->rank, __ATOMIC_RELAXED);
    out->epoch = here - 1;
    out->records = word_get(&record->record_count);
    return out->pid > 0 && out->rank >= 0 && out->rank < COMM_MAX_RANKS;
}

// Returns false if the record is incomplete, was overwritten, or makes no sense.
static bool record_take(const flight_record *at, uint64_t number, comm_record *out)
{
    flight_record r;
    if (word_get(&at->number) != number) return false;
    words_copy_out(&r, at, sizeof(r));
    if (word_get(&at->number) != number) return false;
    const uint32_t op = r.what & 255, reduction = r.what >> 8 & 255, order = r.what >> 16 & 255;
    const uint32_t type = r.what >> 24 & 255;
    if (op >= COLLECTIVE_COUNT || reduction >= REDUCTION_COUNT || order >= COMM_ORDER_COUNT ||
        type >= DTYPE_COUNT || r.count > INT64_MAX) {
        return false;
    }
    *out = (comm_record){.number = number,
                         .sequence = r.sequence,
                         .epoch = (uint32_t)r.where,
                         .group = (uint32_t)(r.where >> 32),
                         .op = (op_collective)op,
                         .reduction = (op_reduction)reduction,
                         .order = (comm_order)order,
                         .type = (dtype)type,
                         .peer = (int32_t)(uint32_t)r.peer,
                         .algorithm = (uint16_t)(r.what >> 32),
                         .count = (int64_t)r.count,
                         .step = r.step,
                         .posted_ns = r.posted_ns != 0 ? r.posted_ns : r.begun_ns,
                         .begun_ns = r.begun_ns,
                         .done_ns = r.done_ns};
    for (int i = 0; i < COMM_RECORD_NAME - 1 && r.name[i] != '\0'; i++) {
        const unsigned char c = (unsigned char)r.name[i];
        out->tensor[i] = (char)(c < ' ' || c == 0x7f ? '?' : c);
    }
    return true;
}

int comm_recorder_read(const comm_control_block *b, int local_rank, comm_record *out, int capacity)
{
    if (local_rank < 0 || local_rank >= b->local_ranks || capacity <= 0) return 0;
    const rank_record *record = rank_record_of(b, local_rank);
    const uint64_t count = word_get(&record->record_count);
    uint64_t wanted = (uint64_t)(capacity < COMM_RECORDS ? capacity : COMM_RECORDS);
    if (wanted > count) wanted = count;
    int taken = 0;
    for (uint64_t number = count - wanted + 1; number != 0 && number <= count; number++) {
        const flight_record *at = &record->records[(number - 1) % BLOCK_RECORDS];
        if (record_take(at, number, &out[taken])) taken++;
    }
    return taken;
}

int64_t comm_recorder_now_ns(const comm_control_block *b)
{
    return block_now_ns(b);
}

const char *comm_record_text(const comm_record *r, char *buffer, int bytes)
{
    char step[32] = "", took[64] = "not done";
    if (r->step >= 0) (void)snprintf(step, sizeof(step), ", step %lld", (long long)r->step);
    if (r->done_ns > 0) {
        (void)snprintf(took, sizeof(took), "done in %.3f ms",
                       ((double)r->done_ns - (double)r->begun_ns) / 1e6); // any two numbers
    }
    (void)snprintf(buffer, (size_t)bytes, "%s #%llu %s of %s (%lld x %s)%s: %s",
                   op_collective_name(r->op), (unsigned long long)r->sequence,
                   op_reduction_name(r->reduction), r->tensor[0] != '\0' ? r->tensor : "?",
                   (long long)r->count, dtype_name(r->type), step, took);
    return buffer;
}
