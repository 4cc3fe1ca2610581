// The bytes of a shard, and where pieces lie in it. Internal to checkpoint/: shard_memory.c has
// their memory, shard.c takes and loads them.
//
//   own    [head][table][step block][other pieces] [head][table][step block][lone pieces]
//                                                  '---------------- lone --------------'
//
// The pieces of an own shard that are lone come last, as a shard of their own; its table has all
// pieces, in the order of tensors. One hash covers all before the pieces, and one the pieces, so a
// value that changes in memory makes the shard unusable, not wrong. The second one is checked only
// of a shard that is read: a rank whose own pieces are in place reads none, if no other rank needs
// them. Pieces of experts are cut into those of each expert, with its rows in the logical tensor,
// because experts may move between ranks (moe.rebalance).
#ifndef CHECKPOINT_SHARD_INTERNAL_H
#define CHECKPOINT_SHARD_INTERNAL_H

#include "checkpoint/shard.h"
#include "checkpoint/state.h"

// SHARD_HASH_PART: bytes of a piece that are copied and hashed at once.
enum { SHARD_NAME_BYTES = 256, SHARD_ALIGN = 64, SHARD_HASH_PART = 1 << 17 };

typedef struct shard_head {
    uint64_t head;           // hash of all bytes from here to the pieces
    uint64_t hash;           // of the pieces' bytes, in the order of the table
    int64_t bytes;           // of the shard
    int64_t step, fork;      // step: -1: empty
    int64_t count;           // pieces
    uint64_t tensors, all;   // hashes of the list of logical tensors, and with residuals
    int64_t block_at, block; // of the step block
    int64_t lone_at;         // of the lone shard in an own one; 0: there is none
    int64_t sequences, tokens, seed, whole_from;
    double val_loss, best_val_loss;
    char best[SHARD_NAME_BYTES], data[SHARD_NAME_BYTES];
} shard_head;

typedef struct shard_piece {
    int64_t item, at, bytes; // at: in the shard
    plan_piece piece;
} shard_piece;

struct ckpt_sharder {
    const ckpt_state *s;
    state_list list;
    int64_t ranks, domain;
    uint64_t tensors, all; // as in shard_head
    int64_t block;         // bytes of the step block
    const char *memory;    // of the arena, NULL: the device hides it
};

shard_head *shard_head_of(const ckpt_shard *k);
shard_piece *shard_table_of(const ckpt_shard *k);
// Whether its pieces are as they were taken.
bool shard_is_sound(const ckpt_shard *k);
int64_t shard_pieces_at(const ckpt_shard *k); // where they begin; -1: the head cannot be right
uint64_t shard_head_hash(const ckpt_shard *k, int64_t pieces); // of all before them

#endif
