// Shards: one rank's pieces of the state in a block of memory, which outlives the run's session and
// can be sent to another rank, the *buddy*.
//
//   own    all pieces of a rank; it stays in the rank's process
//   lone   those of them that no rank of another failure domain holds; it goes to the buddy
//
// An own shard ends with the lone one, so the buddy takes that out of it without another copy.
//
// After a loss the ranks of the next epoch, in any layout, bring together what their processes
// have. A rank takes its pieces from its own memory, or leaves them where they are if the device
// still has them; others come from the first rank that has them. No file is read.
#ifndef CHECKPOINT_SHARD_H
#define CHECKPOINT_SHARD_H

#include "checkpoint/checkpoint.h"

#ifdef __cplusplus
extern "C" {
#endif

// A process keeps two of each shard: one is complete while the other is made.
enum { CKPT_GENERATIONS = 2 };

// A zeroed one is empty. It owns its bytes, whose pages are there from the reserve on.
typedef struct ckpt_shard {
    char *bytes;
    int64_t used, capacity;
    comm_memory *memory;
    comm *peers; // which reach it; NULL: they do not
} ckpt_shard;
void ckpt_shard_free(ckpt_shard *k);
// Gives the shard a capacity of at least this many bytes and empties it.
NODISCARD status ckpt_shard_reserve(ckpt_shard *k, int64_t bytes);
// Lets the ranks of this host read the shard in place, if their transport can; NULL: no longer,
// before that comm is closed.
NODISCARD status ckpt_shard_share(ckpt_shard *k, comm *peers);
// -1: empty, or damaged before its pieces, which are checked when they are read.
int64_t ckpt_shard_step(const ckpt_shard *k);
ckpt_entry ckpt_shard_entry(const ckpt_shard *k); // its step and fork; step -1: as above

// Takes and loads shards of one layout; it is made once in `a`, and `s` is borrowed. ranks: of the
// job; domain: ranks in a row that fail together, such as those of a host.
typedef struct ckpt_sharder ckpt_sharder;
NODISCARD status ckpt_sharder_create(const ckpt_state *s, arena *a, int64_t ranks, int64_t domain,
                                     ckpt_sharder **out);
// The device's arena, where this process reaches it: pieces are copied from there, which costs no
// wait for the device.
void ckpt_sharder_memory(ckpt_sharder *k, const char *memory);
// The size of a rank's lone shard; 0: it is empty. own: of this rank's own shard.
int64_t ckpt_sharder_lone_bytes(const ckpt_sharder *k, int64_t rank);
int64_t ckpt_sharder_own_bytes(const ckpt_sharder *k);
// The bytes that this rank keeps: generations of its own shard, and of another rank's lone one.
int64_t ckpt_sharder_kept_bytes(const ckpt_sharder *k);
// Marks the rows of this rank's run tensors that its shards hold, but for the step block.
void ckpt_sharder_rows(const ckpt_sharder *k, bool *rows);
// Taking a shard has three parts. copy: this rank's pieces, with this step block (NULL: that of the
// device, which is idle); the shard is empty until the third. Any thread may copy while nothing
// writes the state. label: the record of the state, of which only the numbers, `best` and `data`
// are kept; then the lone part can be sent. count: the shard has a state from now on.
NODISCARD status ckpt_sharder_copy(const ckpt_sharder *k, const void *block, ckpt_shard *own);
void ckpt_sharder_label(const ckpt_sharder *k, const ckpt_info *info, int64_t fork,
                        ckpt_shard *own);
void ckpt_shard_count(ckpt_shard *own);
// The lone shard in an own one; NULL: there is none.
char *ckpt_shard_lone(const ckpt_shard *own);
typedef struct ckpt_gathered {
    ckpt_entry entry; // step -1: there is none, and nothing has changed
    uint32_t damaged; // bit i: have[i] was to be read and is damaged
    bool was_held;    // the state was on this rank's device already
    int needy;        // ranks that got pieces from others
} ckpt_gathered;
// Loads the newest step of which the shards of all ranks together have every piece, unless
// `newest` (NULL: none) is newer. Collective.
NODISCARD status ckpt_shards_load(ckpt_sharder *k, const ckpt_shard *const *have, int count,
                                  const ckpt_entry *newest, arena *a, ckpt_info *info,
                                  ckpt_gathered *found);

#ifdef __cplusplus
}
#endif
#endif
