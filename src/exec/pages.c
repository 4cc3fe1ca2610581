#include "exec/pages.h"

#include <string.h>

status exec_pages_create(arena *a, int64_t count, int64_t slots, int64_t context, exec_pages *out)
{
    *out = (exec_pages){
        .count = count, .slots = slots, .each = exec_pages_of(context), .unused_count = count};
    ASSERT(count >= out->each);
    TRY(arena_new(a, slots * out->each, &out->tables));
    TRY(arena_new(a, slots, &out->held));
    TRY(arena_new(a, count, &out->users));
    TRY(arena_new(a, count, &out->unused));
    TRY(arena_new(a, count, &out->seen));
    for (int64_t i = 0; i < count; i++) out->unused[i] = (int32_t)(count - 1 - i);
    return ST_OK;
}

static int32_t *table_of(const exec_pages *p, int64_t slot)
{
    ASSERT(slot >= 0 && slot < p->slots);
    return p->tables + slot * p->each;
}

static int32_t page_take(exec_pages *p)
{
    const int32_t page = p->unused[--p->unused_count];
    ASSERT(p->users[page] == 0);
    p->users[page] = 1;
    return page;
}

static void page_give(exec_pages *p, int32_t page)
{
    ASSERT(p->users[page] > 0);
    if (--p->users[page] == 0) p->unused[p->unused_count++] = page;
}

bool exec_pages_grow(exec_pages *p, int64_t slot, int64_t length, int64_t tokens,
                     exec_page_copy *copy)
{
    int32_t *table = table_of(p, slot);
    const int64_t wanted = exec_pages_of(tokens), at = length / EXEC_PAGE;
    ASSERT(wanted <= p->each && exec_pages_of(length) <= p->held[slot]);
    // Only the last page with tokens is written, and may have other users.
    const bool copies = tokens > length && length % EXEC_PAGE != 0 && p->users[table[at]] > 1;
    *copy = (exec_page_copy){.from = -1};
    if (max_i64(0, wanted - p->held[slot]) + (copies ? 1 : 0) > p->unused_count) return false;
    if (copies) {
        const int32_t page = page_take(p);
        *copy = (exec_page_copy){table[at], page, length % EXEC_PAGE};
        page_give(p, table[at]);
        table[at] = page;
    }
    while (p->held[slot] < wanted) table[p->held[slot]++] = page_take(p);
    return true;
}

void exec_pages_share(exec_pages *p, int64_t from, int64_t to, int64_t tokens)
{
    const int64_t count = exec_pages_of(tokens);
    int32_t *table = table_of(p, to);
    ASSERT(p->held[to] == 0 && count <= p->held[from]);
    memcpy(table, table_of(p, from), (size_t)count * sizeof(*table));
    for (int64_t i = 0; i < count; i++) p->users[table[i]]++;
    p->held[to] = count;
}

void exec_pages_cut(exec_pages *p, int64_t slot, int64_t tokens)
{
    int32_t *table = table_of(p, slot);
    const int64_t left = exec_pages_of(tokens);
    while (p->held[slot] > left) {
        const int64_t last = --p->held[slot];
        page_give(p, table[last]);
        table[last] = 0;
    }
}

int64_t exec_pages_freed(const exec_pages *p, const bool *gone)
{
    int64_t freed = 0;
    memset(p->seen, 0, (size_t)p->count * sizeof(*p->seen));
    for (int64_t b = 0; b < p->slots; b++) {
        const int32_t *table = table_of(p, b);
        for (int64_t i = 0; i < p->held[b] && !gone[b]; i++) p->seen[table[i]] = true;
    }
    for (int64_t i = 0; i < p->count; i++) freed += p->users[i] > 0 && !p->seen[i] ? 1 : 0;
    return freed;
}

status exec_page_copied(exec *e, const exec_caches *c, const exec_page_copy *copy)
{
    for (int64_t i = 0; i < c->count && copy->from >= 0; i++) {
        const exec_cache *one = &c->all[i];
        const int64_t page = EXEC_PAGE * one->token_bytes, bytes = copy->tokens * one->token_bytes;
        TRY(exec_read(e, one->row, copy->from * page, c->copied, bytes));
        TRY(exec_write(e, one->row, copy->to * page, c->copied, bytes));
    }
    return ST_OK;
}
