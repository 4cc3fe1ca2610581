// The footer of a Parquet file: its schema and the places of the columns that are asked for.
//
//   "PAR1"  pages ...  footer (Thrift)  u32 bytes of the footer  "PAR1"
#include "data/corpus/parquet/parquet.h"
#include "data/corpus/parquet/thrift.h"

#include <stdlib.h>
#include <string.h>

enum { TYPE_BYTE_ARRAY = 6, REPEATED = 2, OPTIONAL = 1 };

status parquet_damaged(const parquet_file *p, int64_t at, const char *why)
{
    return fail(ST_DAMAGED, "%s: the Parquet file is damaged at byte %lld: %s", p->path,
                (long long)at, why);
}

typedef struct schema_element {
    const char *name;
    int64_t name_bytes, type, repetition, children;
} schema_element;

static void read_element(thrift_reader *r, schema_element *e)
{
    int id = 0;
    thrift_type type;
    *e = (schema_element){.name = "", .type = -1};
    while (thrift_field(r, &id, &type)) {
        if (id == 1 && type == THRIFT_I32) {
            e->type = thrift_int(r);
        } else if (id == 3 && type == THRIFT_I32) {
            e->repetition = thrift_int(r);
        } else if (id == 4 && type == THRIFT_BINARY) {
            e->name = thrift_binary(r, &e->name_bytes);
        } else if (id == 5 && type == THRIFT_I32) {
            e->children = thrift_int(r);
        } else {
            thrift_skip(r, type);
        }
    }
}

// Matches a top-level leaf with the columns that are asked for.
static void match(parquet_file *p, const schema_element *e, int64_t leaf)
{
    for (int i = 0; i < 2; i++) {
        parquet_column *c = &p->columns[i];
        if (c->index >= 0 || (int64_t)strlen(c->name) != e->name_bytes ||
            memcmp(c->name, e->name, (size_t)e->name_bytes) != 0 || e->repetition == REPEATED) {
            continue;
        }
        c->index = leaf;
        c->type = (int32_t)e->type;
        c->optional = e->repetition == OPTIONAL;
    }
}

// The schema is a tree in preorder, with the number of children of each group.
static void read_schema(parquet_file *p, thrift_reader *r)
{
    thrift_type type;
    schema_element e;
    const int64_t count = thrift_list(r, &type);
    if (type != THRIFT_STRUCT || count < 1 || count > PARQUET_COLUMNS_MAX) r->failed = true;
    if (r->failed) return;
    read_element(r, &e);          // the root
    int64_t leaf = 0, inside = 0; // inside: elements of a top-level group that follow
    for (int64_t i = 1; i < count && !r->failed; i++) {
        read_element(r, &e);
        if (e.children < 0 || e.children > count) r->failed = true;
        if (inside == 0 && e.children == 0) match(p, &e, leaf);
        if (inside > 0) inside--;
        inside += e.children;
        leaf += e.children == 0;
    }
}

static void read_column_meta(thrift_reader *r, parquet_chunk *c)
{
    int id = 0;
    thrift_type type;
    int64_t data_at = -1, dictionary_at = -1;
    while (thrift_field(r, &id, &type)) {
        const bool is_int = type == THRIFT_I32 || type == THRIFT_I64;
        if (id == 4 && is_int) {
            c->codec = (int32_t)thrift_int(r);
        } else if (id == 5 && is_int) {
            c->values = thrift_int(r);
        } else if (id == 7 && is_int) {
            c->bytes = thrift_int(r);
        } else if (id == 9 && is_int) {
            data_at = thrift_int(r);
        } else if (id == 11 && is_int) {
            dictionary_at = thrift_int(r);
        } else {
            thrift_skip(r, type);
        }
    }
    c->at = dictionary_at > 0 && dictionary_at < data_at ? dictionary_at : data_at;
}

static void read_chunk(thrift_reader *r, parquet_chunk *c)
{
    int id = 0;
    thrift_type type;
    *c = (parquet_chunk){.at = -1};
    while (thrift_field(r, &id, &type)) {
        if (id == 1) r->failed = true; // pages in another file
        if (id == 3 && type == THRIFT_STRUCT) {
            read_column_meta(r, c);
        } else {
            thrift_skip(r, type);
        }
    }
}

static void read_group(parquet_file *p, thrift_reader *r, int64_t group)
{
    int id = 0;
    thrift_type type, item;
    while (thrift_field(r, &id, &type)) {
        if (id != 1 || type != THRIFT_LIST) {
            thrift_skip(r, type);
            continue;
        }
        const int64_t count = thrift_list(r, &item);
        if (item != THRIFT_STRUCT) r->failed = true;
        for (int64_t i = 0; i < count && !r->failed; i++) {
            parquet_chunk c;
            read_chunk(r, &c);
            for (int k = 0; k < 2; k++) {
                if (p->columns[k].index == i) p->columns[k].chunks[group] = c;
            }
        }
    }
}

static status read_groups(parquet_file *p, thrift_reader *r)
{
    thrift_type item;
    const int64_t count = thrift_list(r, &item);
    if ((item != THRIFT_STRUCT && count > 0) || count > PARQUET_GROUPS_MAX) r->failed = true;
    if (r->failed) return ST_OK;
    p->group_count = count;
    for (int k = 0; k < 2; k++) TRY(arena_new(p->a, count, &p->columns[k].chunks));
    for (int64_t i = 0; i < count && !r->failed; i++) read_group(p, r, i);
    return ST_OK;
}

static status check_chunks(const parquet_file *p)
{
    for (int k = 0; k < 2; k++) {
        for (int64_t i = 0; i < p->group_count && p->columns[k].index >= 0; i++) {
            const parquet_chunk *c = &p->columns[k].chunks[i];
            if (c->at < 4 || c->bytes < 0 || c->values < 0 || c->at > p->bytes ||
                c->bytes > p->bytes - c->at) {
                return parquet_damaged(p, p->bytes, "its footer names pages outside the file");
            }
        }
    }
    return ST_OK;
}

static status read_footer(parquet_file *p, const uint8_t *bytes, int64_t count)
{
    thrift_reader r = {.at = bytes, .end = bytes + count};
    int id = 0;
    thrift_type type;
    while (thrift_field(&r, &id, &type)) {
        if (id == 2 && type == THRIFT_LIST) {
            read_schema(p, &r);
        } else if (id == 3 && type == THRIFT_I64) {
            p->rows = thrift_int(&r);
        } else if (id == 4 && type == THRIFT_LIST) {
            TRY(read_groups(p, &r));
        } else {
            thrift_skip(&r, type);
        }
    }
    if (r.failed || p->rows < 0) return parquet_damaged(p, p->bytes, "its footer cannot be read");
    const parquet_column *c = &p->columns[0];
    if (c->index < 0) {
        return fail(ST_DATA,
                    "%s: no column \"%s\" among those of the table; give it in sources.NAME.text",
                    p->path, c->name);
    }
    if (c->type != TYPE_BYTE_ARRAY) {
        return fail(ST_DATA, "%s: the column \"%s\" holds no texts", p->path, c->name);
    }
    if (p->columns[1].type != TYPE_BYTE_ARRAY) p->columns[1].index = -1;
    return check_chunks(p);
}

static status load(parquet_file *p)
{
    uint8_t tail[8];
    uint8_t *bytes = NULL;
    uint32_t count = 0;
    TRY(p->h->api->file_open(p->h, p->path, FILE_READ, &p->f));
    TRY(p->h->api->file_size(p->f, &p->bytes));
    if (p->bytes < 12) return parquet_damaged(p, p->bytes, "it is too short");
    TRY(p->h->api->file_read(p->f, p->bytes - 8, tail, sizeof(tail)));
    if (memcmp(tail + 4, "PAR1", 4) != 0) {
        return parquet_damaged(p, p->bytes, "it does not end with PAR1; was it cut?");
    }
    memcpy(&count, tail, sizeof(count));
    if (count > PARQUET_FOOTER_MAX || (int64_t)count > p->bytes - 12) {
        return parquet_damaged(p, p->bytes - 8, "its footer is larger than the file");
    }
    TRY(arena_new(p->a, (int64_t)count + 1, &bytes));
    TRY(p->h->api->file_read(p->f, p->bytes - 8 - (int64_t)count, bytes, (int64_t)count));
    return read_footer(p, bytes, (int64_t)count);
}

status parquet_open(const host *h, const char *path, const char *text_name, const char *id_name,
                    parquet_file **out)
{
    arena *a = NULL;
    parquet_file *p = NULL;
    TRY(arena_create("parquet", 0, &a));
    status st = arena_new(a, 1, &p);
    if (st != ST_OK) {
        arena_destroy(a);
        return st;
    }
    *p = (parquet_file){.h = h, .path = path, .a = a, .columns = {{.index = -1}, {.index = -1}}};
    st = arena_strdup(a, text_name, &p->columns[0].name);
    if (st == ST_OK) st = arena_strdup(a, id_name, &p->columns[1].name);
    if (st == ST_OK) st = load(p);
    if (st != ST_OK) {
        parquet_close(p);
        return st;
    }
    *out = p;
    return ST_OK;
}

void parquet_close(parquet_file *p)
{
    if (p == NULL) return;
    if (p->f != NULL) (void)p->h->api->file_close(p->f); // the file was only read
    arena_destroy(p->a);
}
