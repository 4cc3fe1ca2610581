// Appends whole records to a file. A record that is written only in part is cut off again.
#include "observe/append.h"

#include "base/fault.h"

status obs_append_open(const host *h, const char *path, obs_append *out)
{
    *out = (obs_append){.h = h};
    TRY(h->api->file_open(h, path, FILE_APPEND, &out->f));
    const status st = h->api->file_size(out->f, &out->bytes);
    if (st != ST_OK) {
        (void)h->api->file_close(out->f);
        out->f = NULL;
    }
    return st;
}

// A full disk takes half a record. The next record must not follow it when there is space again.
status obs_append_write(obs_append *a, const void *data, int64_t bytes)
{
    if (a->is_torn) TRY(a->h->api->file_truncate(a->f, a->bytes));
    a->is_torn = false;
    status st = fault_point("observe.append");
    if (st == ST_OK) st = a->h->api->file_write(a->f, data, bytes);
    if (st == ST_OK) {
        a->bytes += bytes;
        return ST_OK;
    }
    error_record kept;
    error_take(&kept);
    a->is_torn = a->h->api->file_truncate(a->f, a->bytes) != ST_OK;
    return error_put(&kept);
}

status obs_append_close(obs_append *a)
{
    file *f = a->f;
    a->f = NULL;
    return f == NULL ? ST_OK : a->h->api->file_close(f);
}
