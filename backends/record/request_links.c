#include "backends/record/request_links.h"

#include <stdio.h>

#include "sim/base/alloc.h"
#include "sim/base/json.h"

// Far beyond any link, and far from where sums of times end.
static const int64_t most_ns = INT64_C(1000000000000000);

// ---- writing ----

static json_t *times_json(const int64_t *ns, size_t count)
{
    json_t *array = json_array();
    for (size_t k = 0; array != NULL && k < count; k++) {
        json_array_append_new(array, json_integer(ns[k]));
    }
    return array;
}

static json_t *far_json(const uint8_t *far, int pp)
{
    json_t *array = json_array();
    for (int r = 0; array != NULL && r < pp; r++) {
        json_array_append_new(array, json_boolean(far[r]));
    }
    return array;
}

json_t *sp_i_links_json(const sp_link_times *links, int pp)
{
    json_t *object = json_object();
    if (!sp_json_put(object, "forward_ns", times_json(links->f_ns, links->forward_packs)) ||
        !sp_json_put(object, "backward_ns", times_json(links->b_ns, links->backward_packs)) ||
        !sp_json_put(object, "forward_far_ns",
                     times_json(links->f_internode_ns, links->forward_packs)) ||
        !sp_json_put(object, "backward_far_ns",
                     times_json(links->b_internode_ns, links->backward_packs)) ||
        !sp_json_put(object, "far", far_json(links->crosses_nodes, pp))) {
        json_decref(object);
        return NULL;
    }
    return object;
}

// ---- reading ----

// A required list of `count` values; NULL, with an error, where there is none.
static const json_t *list_of(sp_object *object, const char *key, size_t count)
{
    sp_object_require(object, key);
    const json_t *array = sp_object_get(object, key);
    if (array != NULL && (!json_is_array(array) || json_array_size(array) != count)) {
        char found[80];
        sp_json_quote(array, found, sizeof found);
        sp_object_error(object, key, "expected %zu values, got %s", count, found);
        return NULL;
    }
    return array;
}

static void value_error(sp_object *object, const char *key, size_t index, const json_t *value,
                        const char *expected)
{
    char place[60];
    char found[80];
    snprintf(place, sizeof place, "%s[%zu]", key, index);
    sp_json_quote(value, found, sizeof found);
    sp_object_error(object, place, "expected %s, got %s", expected, found);
}

static void read_times(sp_object *object, const char *key, size_t count, int64_t *ns)
{
    const json_t *array = list_of(object, key, count);
    for (size_t k = 0; array != NULL && k < count; k++) {
        const json_t *value = json_array_get(array, k);
        ns[k] = json_integer_value(value);
        if (!json_is_integer(value) || ns[k] < 0 || ns[k] > most_ns) {
            value_error(object, key, k, value, "nanoseconds from 0 to 10^15");
        }
    }
}

static void read_far(sp_object *object, size_t count, uint8_t *far)
{
    const json_t *array = list_of(object, "far", count);
    for (size_t r = 0; array != NULL && r < count; r++) {
        const json_t *value = json_array_get(array, r);
        far[r] = json_is_true(value);
        if (!json_is_boolean(value)) {
            value_error(object, "far", r, value, "true or false");
        }
    }
}

static sp_status read_batch(const json_t *json, int batch, const char *source,
                            sp_request_file *file, sp_error *err)
{
    sp_object object;
    char place[40];
    sp_link_times *links = &file->links[batch];
    const sp_packing *packing = file->plans.plans[batch].packing;
    sp_status status = sp_link_times_init(
        links, packing->forward.count, sp_packing_backward(packing)->count, file->layout.pp, err);
    if (status != SP_OK) {
        return status;
    }
    snprintf(place, sizeof place, "links[%d]", batch);
    sp_object_begin(&object, json, source, place, err);
    if (object.json != NULL) {
        read_times(&object, "forward_ns", links->forward_packs, links->f_ns);
        read_times(&object, "backward_ns", links->backward_packs, links->b_ns);
        read_times(&object, "forward_far_ns", links->forward_packs, links->f_internode_ns);
        read_times(&object, "backward_far_ns", links->backward_packs, links->b_internode_ns);
        read_far(&object, (size_t)file->layout.pp, links->crosses_nodes);
        sp_object_end(&object);
    }
    return err->status;
}

sp_status sp_i_links_read(const json_t *member, const char *source, sp_request_file *file,
                          sp_error *err)
{
    size_t count = (size_t)file->plans.count;
    if (member == NULL) {
        return SP_OK;
    }
    if (!json_is_array(member) || json_array_size(member) != count) {
        char found[80];
        sp_json_quote(member, found, sizeof found);
        return sp_error_in(err, SP_ERR_CONTENT, source, "links",
                           "expected one object for each of %zu batches, got %s", count, found);
    }
    file->links = sp_i_calloc(count, sizeof *file->links);
    sp_status status = file->links != NULL ? SP_OK : sp_error_no_memory(err, "the times of links");
    for (int b = 0; status == SP_OK && b < file->plans.count; b++) {
        status = read_batch(json_array_get(member, (size_t)b), b, source, file, err);
    }
    return status;
}
