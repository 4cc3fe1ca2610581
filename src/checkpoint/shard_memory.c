// Memory of shards, and whether they are sound.
#include "base/hash.h"
#include "checkpoint/shard_internal.h"

void ckpt_shard_free(ckpt_shard *k)
{
    comm_memory_destroy(k->memory);
    *k = (ckpt_shard){0};
}

static status memory_share(ckpt_shard *k)
{
    if (k->memory == NULL || k->peers == NULL) return ST_OK;
    const status st = comm_memory_join(k->peers, k->memory);
    if (st != ST_UNSUPPORTED) return st;
    error_clear(); // then its bytes are staged
    return ST_OK;
}

status ckpt_shard_share(ckpt_shard *k, comm *peers)
{
    const bool has_left = k->memory == NULL || comm_memory_leave(k->memory);
    ASSERT(has_left); // it joins only what it can leave
    k->peers = peers;
    return memory_share(k);
}

status ckpt_shard_reserve(ckpt_shard *k, int64_t bytes)
{
    k->used = 0;
    if (bytes <= k->capacity) return ST_OK;
    comm_memory_destroy(k->memory);
    k->memory = NULL;
    k->bytes = NULL;
    k->capacity = 0;
    const status st = comm_memory_create_apart(bytes, &k->memory);
    if (st != ST_OK) {
        note("while reserving memory for a copy of the state");
        return st;
    }
    k->bytes = comm_memory_at(k->memory);
    k->capacity = bytes;
    return memory_share(k);
}

shard_head *shard_head_of(const ckpt_shard *k)
{
    return (shard_head *)(void *)k->bytes;
}

// Where the bytes of the pieces begin; -1: the head cannot be right.
int64_t shard_pieces_at(const ckpt_shard *k)
{
    const shard_head *head = shard_head_of(k);
    const int64_t least = (int64_t)sizeof(*head);
    if (k->used < least || head->bytes != k->used || head->block_at < least) return -1;
    if (head->block_at > k->used || head->block < 0 || head->block > k->used) return -1;
    const int64_t at = align_up(head->block_at + head->block, SHARD_ALIGN);
    return at <= k->used ? at : -1;
}

uint64_t shard_head_hash(const ckpt_shard *k, int64_t pieces)
{
    const int64_t skip = (int64_t)sizeof(uint64_t);
    return hash64(k->bytes + skip, pieces - skip, 1);
}

shard_piece *shard_table_of(const ckpt_shard *k)
{
    return (shard_piece *)(void *)(k->bytes + sizeof(shard_head));
}

// Returns the hash of the pieces from `begin` to `end`.
static uint64_t pieces_hash(const ckpt_shard *k, int64_t begin, int64_t end)
{
    uint64_t hash = 1;
    for (int64_t i = 0; i < shard_head_of(k)->count; i++) {
        const shard_piece *p = &shard_table_of(k)[i];
        if (p->at < begin || p->at > end || p->bytes < 0 || p->bytes > end - p->at) continue;
        for (int64_t at = 0; at < p->bytes; at += SHARD_HASH_PART) {
            hash = hash64(k->bytes + p->at + at, min_i64(SHARD_HASH_PART, p->bytes - at), hash);
        }
    }
    return hash;
}

int64_t ckpt_shard_step(const ckpt_shard *k)
{
    const int64_t pieces = shard_pieces_at(k);
    return pieces >= 0 && shard_head_hash(k, pieces) == shard_head_of(k)->head
               ? shard_head_of(k)->step
               : -1;
}

ckpt_entry ckpt_shard_entry(const ckpt_shard *k)
{
    const int64_t step = ckpt_shard_step(k);
    return (ckpt_entry){.step = step, .fork = step >= 0 ? shard_head_of(k)->fork : 0};
}

// Whether its pieces are as they were taken, but for those of the lone shard in it.
static bool are_sound(const ckpt_shard *k, int64_t end)
{
    return ckpt_shard_step(k) >= 0 &&
           pieces_hash(k, shard_pieces_at(k), end) == shard_head_of(k)->hash;
}

bool shard_is_sound(const ckpt_shard *k)
{
    const int64_t lone = k->used > 0 ? shard_head_of(k)->lone_at : 0;
    if (lone == 0) return are_sound(k, k->used);
    if (lone < shard_pieces_at(k) || lone > k->used) return false;
    const ckpt_shard in = {.bytes = k->bytes + lone, .used = k->used - lone};
    return are_sound(k, lone) && are_sound(&in, in.used);
}
