// Which sequences have pages of the cache, where it is smaller than all slots together.
//
//   begins     if there are pages for its prompt, and one more for each sequence that runs
//   extends    takes a page for every EXEC_PAGE tokens; if none is left, first the prompts of
//              sequences that are over give way, then the sequence that began last: it is put back
//   put back   has no page; comes back when there are pages, before any other begins, and is then
//              computed again as it was before: the prompt at once, the drawn tokens one by one
//   over       keeps the pages of its prompt; the same prompt takes them over, in strict mode one
//              that begins in the same way too, as far as that saves whole chunks. Without kept
//              logits the last chunk of the same prompt is computed again.
//
// In strict mode a sequence that was put back has the bits of one that was not. All ranks decide
// in the same way, because they make the same calls.
#include "infer/generate.h"

// The slot that began first (or last) of those with pages and a sequence that goes on (or is over),
// and that began after `age`; -1: none.
static int64_t holder_find(const infer *g, bool is_live, bool last, int64_t age)
{
    int64_t found = -1;
    for (int64_t b = 0; b < g->slot_count; b++) {
        const infer_held *s = &g->slots[b];
        if (g->pages.held[b] == 0 || s->is_live != is_live || s->age <= age) continue;
        if (found < 0 || (s->age > g->slots[found].age) == last) found = b;
    }
    return found;
}

// Gives the slot, which has `length` tokens in its pages, the pages for `tokens`. Prompts of
// sequences that are over give way, the oldest first.
static status pages_grow(infer *g, int64_t b, int64_t length, int64_t tokens, bool *has)
{
    exec_page_copy copy;
    while (!(*has = exec_pages_grow(&g->pages, b, length, tokens, &copy))) {
        const int64_t over = holder_find(g, false, false, 0);
        if (over < 0) return ST_OK;
        exec_pages_cut(&g->pages, over, 0);
        g->slots[over].prompt = 0;
    }
    return exec_page_copied(g->c.e, &g->caches, &copy);
}

int64_t infer_prefix_find(const infer *g, const int32_t *ids, int64_t count, int64_t *from)
{
    int64_t best = 0;
    *from = -1;
    for (int64_t b = 0; b < g->slot_count && g->c.pages > 0; b++) {
        const infer_held *s = &g->slots[b];
        const int64_t has = min_i64(count - 1, s->is_live ? s->prefilled : s->prompt);
        int64_t same = 0;
        if (has == 0 || exec_pages_of(has) > g->pages.held[b]) continue;
        if (model_rope_changes(&g->c.spec, s->table_seq, count)) continue;
        while (same < has && s->text[same] == ids[same]) same++;
        // Otherwise keys have the same bits only where the whole prompt was cut in the same way.
        const bool is_whole = s->prompt == count && same == count - 1 && s->text[same] == ids[same];
        if (!g->c.strict && !is_whole) continue;
        const int64_t start = count - (count - same + g->chunk - 1) / g->chunk * g->chunk;
        if (start <= best) continue;
        best = start;
        *from = b;
    }
    return best;
}

status infer_pages_begin(infer *g, int64_t b, int64_t from, int64_t start, int64_t count)
{
    bool has = false;
    exec_pages_cut(&g->pages, b, from == b ? start : 0);
    if (start > 0 && from != b) exec_pages_share(&g->pages, from, b, start);
    TRY(pages_grow(g, b, start, count, &has));
    if (has) return ST_OK;
    g->slots[b].is_live = false;
    exec_pages_cut(&g->pages, b, 0);
    return fail(ST_NO_MEMORY, "the cache has no pages for a prompt of %lld tokens",
                (long long)count);
}

static void put_back(infer *g, int64_t b)
{
    infer_held *s = &g->slots[b];
    exec_pages_cut(&g->pages, b, 0);
    s->prompt = 0;
    s->target = s->target > s->length ? s->target : s->length;
    s->is_back = true;
    g->put_back++;
}

// Pages that a sequence which begins or comes back must leave to the others, one for each, so that
// it is not put back at once.
static int64_t pages_of_others(const infer *g, int64_t b)
{
    int64_t count = 0;
    for (int64_t i = 0; i < g->slot_count; i++) {
        const infer_held *s = &g->slots[i];
        count += i != b && s->is_live && !s->is_back ? 1 : 0;
    }
    return count;
}

// Pages that no running sequence has, nor slot `stays` (-1: no other).
static int64_t pages_left(const infer *g, int64_t stays)
{
    for (int64_t b = 0; b < g->slot_count; b++) g->gone[b] = !g->slots[b].is_live && b != stays;
    return g->pages.unused_count + exec_pages_freed(&g->pages, g->gone);
}

// Pages for one more token of a sequence that has its pages; younger ones give way.
static status pages_extend(infer *g, int64_t b, int64_t length)
{
    bool has = false;
    for (;;) {
        TRY(pages_grow(g, b, length, length + 1, &has));
        if (has) return ST_OK;
        const int64_t young = holder_find(g, true, true, g->slots[b].age);
        put_back(g, young >= 0 ? young : b);
        if (young < 0) return ST_OK;
    }
}

// Sees to the pages of a turn. *has: it can be made.
static status turn_pages(infer *g, int64_t b, bool *has)
{
    infer_held *s = &g->slots[b];
    if (!s->is_back && infer_table_fits(g, s, s->table_seq)) {
        TRY(pages_extend(g, b, s->length));
        *has = !s->is_back;
        return ST_OK;
    }
    // It is computed again from its beginning, in pages of its own.
    const int64_t needs = exec_pages_of((s->is_back ? s->target : s->length) + 1);
    exec_pages_cut(&g->pages, b, 0);
    s->prompt = 0;
    while (needs + (s->is_back ? pages_of_others(g, b) : 0) > pages_left(g, -1)) {
        const int64_t young = s->is_back ? -1 : holder_find(g, true, true, s->age);
        if (young < 0 && !s->is_back) put_back(g, b);
        if (young < 0) return ST_OK;
        put_back(g, young);
    }
    return pages_grow(g, b, 0, needs * EXEC_PAGE, has);
}

static int turn_compare(const infer *g, const infer_turn *a, const infer_turn *b)
{
    return g->slots[a->slot].age < g->slots[b->slot].age ? -1 : 1;
}

// Sees to the pages of all turns, the oldest sequence first, and marks those without by next = -1.
// Behind a sequence that waits for pages no younger one comes back.
status infer_pages_turns(infer *g, infer_turn *turns, int64_t count)
{
    bool waits = false;
    for (int64_t i = 0; i < count; i++) {
        int64_t at = i;
        for (; at > 0 && turn_compare(g, &turns[i], g->oldest[at - 1]) < 0; at--) {
            g->oldest[at] = g->oldest[at - 1];
        }
        g->oldest[at] = &turns[i];
    }
    for (int64_t i = 0; i < count; i++) {
        infer_turn *turn = g->oldest[i];
        bool has = false;
        if (!waits || !g->slots[turn->slot].is_back) TRY(turn_pages(g, turn->slot, &has));
        waits = waits || !has;
        turn->next = has ? 0 : -1;
    }
    return ST_OK;
}

bool infer_fits(infer *g, const int32_t *ids, int64_t count)
{
    if (g->c.pages == 0) return true;
    for (int64_t b = 0; b < g->slot_count; b++) {
        if (g->slots[b].is_live && g->slots[b].is_back) return false; // it comes first
    }
    const int64_t others = pages_of_others(g, -1), kept = infer_prompt_find(g, ids, count);
    if (kept >= 0) return others == 0 || others + 1 <= pages_left(g, kept);
    return exec_pages_of(min_i64(count + 1, g->c.context)) + others <= pages_left(g, -1);
}

void infer_pages_end(infer *g, int64_t b)
{
    infer_held *s = &g->slots[b];
    s->is_live = s->is_back = false;
    exec_pages_cut(&g->pages, b, s->prompt);
}

status infer_slot_end(infer *g, int64_t slot)
{
    if (g->c.pages == 0) return ST_OK;
    infer_order order = {.kind = INFER_ORDER_LEAVE, .index = slot};
    TRY(infer_ranks_share(&g->c, &order, (int64_t)sizeof(order)));
    infer_pages_end(g, slot);
    return ST_OK;
}

infer_cache infer_cache_counted(const infer *g)
{
    return (infer_cache){.tokens = g->pages.count * EXEC_PAGE,
                         .used = (g->pages.count - g->pages.unused_count) * EXEC_PAGE,
                         .put_back = g->put_back};
}
