// From YAML text to a tree of scalars, maps and lists, each with its place. libyaml parses the
// grammar. This file refuses constructs that a configuration must not use: aliases and anchors (a
// value must stand where it is read), tags (types come from the option table), merge keys,
// duplicate keys, several documents, and input deeper or larger than a person would write.
#include "base/format/config_internal.h"
#include "base/format/options_internal.h"

#include <string.h>
#include <yaml.h>

typedef struct reader {
    config_complaints *l;
    yaml_parser_t parser;
    int64_t nodes;
    bool stopped; // malformed YAML or a limit was met: no more events
} reader;

static config_mark mark_of(const yaml_event_t *e)
{
    const int64_t width = e->start_mark.line == e->end_mark.line
                              ? (int64_t)e->end_mark.column - (int64_t)e->start_mark.column
                              : 1;
    return (config_mark){.line = (int64_t)e->start_mark.line + 1,
                         .column = (int64_t)e->start_mark.column + 1,
                         .width = max_i64(width, 1)};
}

// Line and column of one byte of the source.
static config_mark mark_at(const config_source *s, int64_t offset)
{
    config_mark m = {.line = 1, .column = 1, .width = 1};
    for (int64_t i = 0; i < offset && i < s->count; i++) {
        if (s->bytes[i] == '\n') {
            m.line++;
            m.column = 1;
        } else if (((unsigned char)s->bytes[i] & 0xC0) != 0x80) {
            m.column++;
        }
    }
    return m;
}

// ---- bytes -------------------------------------------------------------------------------------

// Checks that the bytes can be YAML; false, with a complaint, if they cannot.
static bool check_bytes(config_complaints *l)
{
    const config_source *s = &l->source;
    if (s->count > CONFIG_BYTES_MAX) {
        config_complain_at(l, (config_mark){1, 1, 1}, ST_CONFIG_SYNTAX,
                           "the file has %lld bytes, at most %d expected", (long long)s->count,
                           CONFIG_BYTES_MAX);
        return false;
    }
    const char *nul = s->count == 0 ? NULL : memchr(s->bytes, '\0', (size_t)s->count);
    if (nul != NULL) {
        config_complain_at(l, mark_at(s, nul - s->bytes), ST_CONFIG_SYNTAX,
                           "a NUL byte; is this a text file in UTF-8?");
        return false;
    }
    if (text_is_utf8(s->bytes, s->count)) return true;
    int64_t good = 0, bad = s->count; // the longest valid prefix, by bisection
    while (bad - good > 1) {
        const int64_t middle = good + (bad - good) / 2;
        int64_t cut = middle; // not within a character
        while (cut > good && ((unsigned char)s->bytes[cut] & 0xC0) == 0x80) cut--;
        if (cut == good) break;
        if (text_is_utf8(s->bytes, cut)) {
            good = cut;
        } else {
            bad = cut;
        }
    }
    config_complain_at(l, mark_at(s, good), ST_CONFIG_SYNTAX, "the text here is not UTF-8");
    return false;
}

// ---- events ------------------------------------------------------------------------------------

static status complain_of_parser(reader *r)
{
    const yaml_parser_t *p = &r->parser;
    r->stopped = true;
    if (p->error == YAML_MEMORY_ERROR) return fail(ST_NO_MEMORY, "no memory to read YAML");
    const config_source *s = &r->l->source;
    const char *problem = p->problem == NULL ? "this is not YAML" : p->problem;
    if (p->error == YAML_READER_ERROR) {
        config_complain_at(r->l, mark_at(s, (int64_t)p->problem_offset), ST_CONFIG_SYNTAX, "%s",
                           problem);
        return ST_OK;
    }
    const config_mark mark = {.line = (int64_t)p->problem_mark.line + 1,
                              .column = (int64_t)p->problem_mark.column + 1,
                              .width = 1};
    const size_t at = p->problem_mark.index;
    const bool is_tab = at < (size_t)s->count && s->bytes[at] == '\t';
    const char *context = p->context == NULL ? "" : p->context;
    config_complain_at(r->l, mark, ST_CONFIG_SYNTAX, "%s%s%s%s", problem, *context ? " " : "",
                       context, is_tab ? "; this is a tab, indent with blanks" : "");
    return ST_OK;
}

static status next_event(reader *r, yaml_event_t *out)
{
    memset(out, 0, sizeof(*out));
    if (r->stopped) return ST_OK;
    if (yaml_parser_parse(&r->parser, out) == 1) return ST_OK;
    return complain_of_parser(r);
}

static void stop(reader *r, config_mark mark, const char *what, int64_t limit)
{
    config_complain_at(r->l, mark, ST_CONFIG_SYNTAX, "%s: at most %lld expected", what,
                       (long long)limit);
    r->stopped = true;
}

static void refuse_extras(reader *r, const yaml_char_t *anchor, const yaml_char_t *tag,
                          config_mark mark)
{
    if (anchor != NULL) {
        config_complain_at(r->l, mark, ST_CONFIG_SYNTAX,
                           "anchors (&name) are not used here; write the value where it is read");
    }
    if (tag != NULL) {
        config_complain_at(r->l, mark, ST_CONFIG_SYNTAX,
                           "tags (!name) are not used here; types come from the option");
    }
}

static status new_node(reader *r, const yaml_event_t *e, config_node **out)
{
    if (++r->nodes > CONFIG_NODES_MAX) {
        stop(r, mark_of(e), "too many values", CONFIG_NODES_MAX);
    }
    TRY(arena_new(r->l->a, 1, out));
    (*out)->mark = mark_of(e);
    return ST_OK;
}

static status read_scalar(reader *r, const yaml_event_t *e, config_node *node)
{
    refuse_extras(r, e->data.scalar.anchor, e->data.scalar.tag, node->mark);
    const char *value = (const char *)e->data.scalar.value;
    if (memchr(value, '\0', e->data.scalar.length) != NULL) {
        config_complain_at(r->l, node->mark, ST_CONFIG_SYNTAX, "a value with a NUL character");
    }
    char *copy;
    TRY(arena_strdup(r->l->a, value, &copy));
    node->kind = CONFIG_SCALAR;
    node->text = copy;
    node->is_plain = e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    return ST_OK;
}

static void append(config_node *parent, config_node *child)
{
    if (parent->last == NULL) {
        parent->first = child;
    } else {
        parent->last->next = child;
    }
    parent->last = child;
    parent->count++;
}

// ---- the tree ----------------------------------------------------------------------------------

static status read_node(reader *r, yaml_event_t *event, int depth, config_node **out);

// Reads the next node; *out is NULL at the end of a map or list, or when stopped.
static status read_next(reader *r, int depth, config_node **out)
{
    yaml_event_t event;
    *out = NULL;
    TRY(next_event(r, &event));
    const bool ends =
        r->stopped || event.type == YAML_SEQUENCE_END_EVENT || event.type == YAML_MAPPING_END_EVENT;
    const status st = ends ? ST_OK : read_node(r, &event, depth, out);
    yaml_event_delete(&event);
    return st;
}

// Checks a key of this map; false, with a complaint, if it is not allowed there.
static bool check_key(reader *r, const config_node *map, const config_node *key)
{
    char shown[OPTION_SHOWN_BYTES];
    if (key->kind != CONFIG_SCALAR) {
        config_complain_at(r->l, key->mark, ST_CONFIG_SYNTAX, "a key must be a word");
        return false;
    }
    if (key->is_plain && strcmp(key->text, "<<") == 0) {
        config_complain_at(r->l, key->mark, ST_CONFIG_SYNTAX,
                           "merge keys (<<) are not used here; write the values out");
        return false;
    }
    for (const config_node *other = map->first; other != NULL; other = other->next) {
        if (strcmp(other->key->text, key->text) == 0) {
            config_complain_at(r->l, key->mark, ST_CONFIG_SYNTAX,
                               "key %s is given twice, first in line %lld",
                               option_shown(key->text, shown), (long long)other->key->mark.line);
            return false;
        }
    }
    return true;
}

static status read_map(reader *r, int depth, config_node *map)
{
    map->kind = CONFIG_MAP;
    while (!r->stopped) {
        config_node *key, *value;
        TRY(read_next(r, depth + 1, &key));
        if (key == NULL) return ST_OK;
        TRY(read_next(r, depth + 1, &value));
        if (value == NULL) return ST_OK; // stopped
        if (map->count >= CONFIG_ENTRIES_MAX) {
            stop(r, key->mark, "too many keys in one map", CONFIG_ENTRIES_MAX);
        } else if (check_key(r, map, key)) {
            value->key = key;
            append(map, value);
        }
    }
    return ST_OK;
}

static status read_list(reader *r, int depth, config_node *list)
{
    list->kind = CONFIG_LIST;
    while (!r->stopped) {
        config_node *item;
        TRY(read_next(r, depth + 1, &item));
        if (item == NULL) return ST_OK;
        append(list, item);
    }
    return ST_OK;
}

static status read_node(reader *r, yaml_event_t *event, int depth, config_node **out)
{
    config_node *node;
    TRY(new_node(r, event, &node));
    if (depth > CONFIG_DEPTH_MAX) stop(r, node->mark, "nested too deeply", CONFIG_DEPTH_MAX);
    if (r->stopped) return ST_OK;
    if (event->type == YAML_SCALAR_EVENT) {
        TRY(read_scalar(r, event, node));
    } else if (event->type == YAML_MAPPING_START_EVENT) {
        refuse_extras(r, event->data.mapping_start.anchor, event->data.mapping_start.tag,
                      node->mark);
        TRY(read_map(r, depth, node));
    } else if (event->type == YAML_SEQUENCE_START_EVENT) {
        refuse_extras(r, event->data.sequence_start.anchor, event->data.sequence_start.tag,
                      node->mark);
        TRY(read_list(r, depth, node));
    } else {
        ASSERT(event->type == YAML_ALIAS_EVENT);
        config_complain_at(r->l, node->mark, ST_CONFIG_SYNTAX,
                           "aliases (*name) are not used here; write the value out");
        node->kind = CONFIG_SCALAR;
        node->text = "";
        node->is_plain = true;
    }
    *out = node;
    return ST_OK;
}

// Stream start, one document (or none), stream end.
static status read_stream(reader *r, config_node **out)
{
    yaml_event_t event;
    bool is_document_seen = false;
    while (!r->stopped) {
        TRY(next_event(r, &event));
        const yaml_event_type_t type = event.type;
        const config_mark mark = mark_of(&event);
        yaml_event_delete(&event);
        if (r->stopped || type == YAML_STREAM_END_EVENT) return ST_OK;
        if (type != YAML_DOCUMENT_START_EVENT) continue;
        if (is_document_seen) {
            config_complain_at(r->l, mark, ST_CONFIG_SYNTAX,
                               "a second document; one file holds one configuration");
            r->stopped = true;
            return ST_OK;
        }
        is_document_seen = true;
        config_node *root;
        TRY(read_next(r, 1, &root));
        *out = root;
    }
    return ST_OK;
}

status config_tree_read(config_complaints *l, config_node **out)
{
    *out = NULL;
    if (!check_bytes(l)) return ST_OK;
    reader r = {.l = l};
    if (yaml_parser_initialize(&r.parser) == 0) {
        return fail(ST_NO_MEMORY, "no memory to read YAML");
    }
    yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)l->source.bytes,
                                 (size_t)l->source.count);
    const status st = read_stream(&r, out);
    yaml_parser_delete(&r.parser);
    if (r.stopped) *out = NULL;
    return st;
}
