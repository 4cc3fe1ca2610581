// Pages of a cache of generation: where in the pool the tokens of the sequence in a slot are.
//
//   pool     | 0 | 1 | 2 | 3 | 4 | 5 |    pages of EXEC_PAGE tokens, in each cache
//   slot 0     0   2   3                  tokens 0 .. 15 are in page 0, 16 .. 31 in page 2, ...
//   slot 1     0   2   5                  the first tokens of both are the same: pages 0 and 2 have
//                                         two users
//
// A page that more than one slot has is never written: a slot that appends to it gets a copy first.
// Ranks that make the same calls have the same tables.
#ifndef EXEC_PAGES_H
#define EXEC_PAGES_H

#include "exec/caches.h"

enum { EXEC_PAGE = OP_PAGE }; // tokens

typedef struct exec_pages {
    int64_t count, slots, each; // pages; entries of a slot's table
    int32_t *tables;            // (slots, each); entries that are not held are 0
    int64_t *held;              // of each slot
    int32_t *users;             // of each page
    int32_t *unused;            // a stack
    int64_t unused_count;
    bool *seen; // [page] of exec_pages_freed
} exec_pages;

// A page whose first rows must be copied before the slot appends; from -1: none.
typedef struct exec_page_copy {
    int64_t from, to, tokens;
} exec_page_copy;

// Pages that hold so many tokens.
static inline int64_t exec_pages_of(int64_t tokens)
{
    return (tokens + EXEC_PAGE - 1) / EXEC_PAGE;
}

NODISCARD status exec_pages_create(arena *a, int64_t count, int64_t slots, int64_t context,
                                   exec_pages *out);
// Gives a slot that has `length` tokens the pages to have `tokens`. False: too few are unused, and
// nothing changes.
bool exec_pages_grow(exec_pages *p, int64_t slot, int64_t length, int64_t tokens,
                     exec_page_copy *copy);
// The first tokens of `to`, which holds no page, are those of `from`.
void exec_pages_share(exec_pages *p, int64_t from, int64_t to, int64_t tokens);
// Gives up what is behind the first `tokens` of a slot.
void exec_pages_cut(exec_pages *p, int64_t slot, int64_t tokens);
// Pages that would be unused too if the slots with gone[slot] gave up theirs.
int64_t exec_pages_freed(const exec_pages *p, const bool *gone);
// Copies the rows of a page in all caches.
NODISCARD status exec_page_copied(exec *e, const exec_caches *c, const exec_page_copy *copy);

#endif
