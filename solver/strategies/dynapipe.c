// DynaPipe (Jiang et al., arXiv 2311.10418, section 4): samples by descending length, cut into
// micro-batches of neighbours by the dynamic programme that minimises (c-1) max t + sum t / D for c
// pipeline stages and D data-parallel ranks; t is the forward and backward time of a micro-batch
// whose samples are padded to its longest. On every rank the activations of c such micro-batches
// fit the memory that the model states leave; a sample that is too long for that is alone, if it
// fits at all. Micro-batches go to ranks by the method of Karmarkar and Karp. The paper's tour
// through samples that have two lengths, and its order of actions in place of 1F1B, are left out.
#include <math.h>

#include "sim/base/alloc.h"
#include "sim/base/units.h"
#include "solver/rows.h"
#include "solver/slicing.h"
#include "solver/step/step.h"
#include "solver/strategy_list.h"

// Micro-batches that are weighed, and how fine the search is: it may stop (c-1) t / STEPS short of
// the optimum for the time t of the longest sample.
enum { MOST_WEIGHED = 1 << 20, STEPS = 250 };

typedef struct search {
    const sp_strategy_input *input;
    int32_t *order;     // [batch->count]: samples by descending length
    int64_t *most;      // [batch->count]: samples of a micro-batch from there on, by memory
    int64_t *room;      // [pp]: bytes that the model states leave
    int64_t *price_ns;  // [batch->count * points]: of point(k) samples from there on
    size_t points;      // up to the largest of most[]
    int64_t most_ns;    // so many times add up without overflow
    sp_pack_list asked; // the micro-batch that is being priced, as the only pack
} search;

static search search_init(const sp_strategy_input *input);
static void search_fini(search *find);
static sp_status find_groups(search *find, sp_terapipe_slices *groups, sp_error *err);
static void add_group(const search *find, size_t first, size_t count, sp_pack_list *list);

sp_status sp_i_pack_dynapipe(const sp_strategy_input *input, sp_packing *packing, sp_error *err)
{
    search find = search_init(input);
    sp_terapipe_slices groups = {0};
    sp_packing_init(packing, input->batch, input->scenario->layout.dp);
    sp_status status = find_groups(&find, &groups, err);
    size_t first = 0;
    for (size_t g = 0; status == SP_OK && g < groups.count; g++) {
        size_t count = (size_t)groups.tokens[g];
        add_group(&find, first, count, &packing->forward);
        first += count;
    }
    if (status == SP_OK) {
        sp_i_assign_by_time(packing, input->cost, 0);
    }
    sp_terapipe_slices_fini(&groups);
    search_fini(&find);
    return status;
}

static void find_room(search *find);

static search search_init(const sp_strategy_input *input)
{
    const sp_layout *layout = &input->scenario->layout;
    size_t count = input->batch->count;
    search find = {.input = input,
                   .order = sp_i_order_descending(input->batch),
                   .most = sp_calloc(count, sizeof *find.most),
                   .room = sp_calloc((size_t)layout->pp, sizeof *find.room),
                   .most_ns = INT64_MAX / 2 / ((int64_t)count + (int64_t)layout->pp * layout->dp)};
    find_room(&find);
    return find;
}

static void search_fini(search *find)
{
    sp_free(find->order);
    sp_free(find->most);
    sp_free(find->room);
    sp_free(find->price_ns);
    sp_free(find->asked.packs);
    sp_free(find->asked.slices);
}

static int64_t longest_of(const search *find, size_t first)
{
    return find->input->batch->tokens[find->order[first]];
}

// ---- memory ----

static void find_room(search *find)
{
    const sp_scenario *scenario = find->input->scenario;
    const sp_layout *layout = &scenario->layout;
    sp_stage *stages = sp_calloc((size_t)layout->chunks, sizeof *stages);
    for (int r = 0; r < layout->pp; r++) {
        sp_bytes states = {{0}};
        for (int c = 0; c < layout->chunks; c++) {
            stages[c] = find->input->cost->stages[sp_layout_vstage(layout, r, c)];
        }
        sp_footprint_states(&scenario->model, layout, &scenario->memory.stack, stages,
                            layout->chunks, &states);
        find->room[r] = scenario->memory_limit_bytes - sp_bytes_total(&states);
    }
    sp_free(stages);
}

// Do `in_flight` micro-batches of `count` samples of `tokens` tokens fit a rank, one of them at
// work?
static bool fits_rank(const search *find, int rank, int64_t tokens, int64_t count, int in_flight)
{
    const sp_scenario *scenario = find->input->scenario;
    const sp_layout *layout = &scenario->layout;
    double held = 0.0;
    double at_work = 0.0;
    for (int c = 0; c < layout->chunks; c++) {
        const sp_stage *stage = &find->input->cost->stages[sp_layout_vstage(layout, rank, c)];
        sp_unit_bytes unit;
        const sp_unit_load load = {.tokens = count * tokens, .pairs = count * tokens * tokens};
        sp_footprint_unit(&scenario->model, layout, stage, &scenario->memory, &load, &unit);
        held += (double)sp_bytes_total(&unit.held);
        at_work = fmax(at_work, (double)sp_bytes_total(&unit.forward));
        at_work = fmax(at_work, (double)sp_bytes_total(&unit.backward));
    }
    return in_flight * held + at_work <= (double)find->room[rank];
}

static bool fits(const search *find, size_t first, int64_t count, int in_flight)
{
    int64_t tokens = longest_of(find, first);
    // Pairs that cannot be counted.
    bool fit = count <= INT64_MAX / tokens / tokens;
    for (int r = 0; fit && r < find->input->scenario->layout.pp; r++) {
        fit = fits_rank(find, r, tokens, count, in_flight);
    }
    return fit;
}

// Fills most[]; returns the largest of them.
static int64_t find_most(search *find, int64_t limit)
{
    size_t samples = find->input->batch->count;
    int stages = find->input->scenario->layout.pp;
    int64_t largest = 0;
    for (size_t first = 0; first < samples; first++) {
        int64_t low = 0;
        int64_t high = (int64_t)(samples - first);
        // A later start has shorter samples: at least one less of them than before.
        if (first > 0 && find->most[first - 1] > 0) {
            low = find->most[first - 1] - 1;
        }
        high = high < limit ? high : limit;
        while (low < high) {
            int64_t middle = high - (high - low) / 2;
            if (fits(find, first, middle, stages)) {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        find->most[first] = high == 0 && fits(find, first, 1, 1) ? 1 : high;
        largest = find->most[first] > largest ? find->most[first] : largest;
    }
    return largest;
}

// ---- the programme ----

static void add_group(const search *find, size_t first, size_t count, sp_pack_list *list)
{
    size_t last = find->input->batch->count - 1;
    sp_pack_list_begin(list, 0, 1);
    for (size_t i = first; i < first + count; i++) {
        // A priced size may reach beyond the list; padded to the first, all samples cost the same.
        int32_t sample = find->order[i < last ? i : last];
        sp_slice slice = {.sample = sample,
                          .tokens = find->input->batch->tokens[sample],
                          .computed_tokens = longest_of(find, first)};
        sp_pack_list_add(list, slice, true);
    }
}

// Sizes of micro-batches that are priced: 1 to 8, then 10, 12, 14, 16, 20, ... The times of others
// lie on lines between them, as the paper reads its table of measured times.
static int64_t point(size_t k)
{
    return k < 4 ? (int64_t)k + 1 : (int64_t)(5 + k % 4) << (k / 4 - 1);
}

static void price(search *find, int64_t largest)
{
    size_t samples = find->input->batch->count;
    find->points = 1;
    while (point(find->points - 1) < largest) {
        find->points++;
    }
    find->price_ns = sp_calloc(samples * find->points, sizeof *find->price_ns);
    for (size_t first = 0; first < samples; first++) {
        int64_t *ns = &find->price_ns[first * find->points];
        for (size_t k = 0; k < find->points && (k == 0 || point(k - 1) < find->most[first]); k++) {
            find->asked.count = 0;
            find->asked.slice_count = 0;
            add_group(find, first, (size_t)point(k), &find->asked);
            ns[k] = sp_ns_from_s(
                sp_cost_model_pack_s(find->input->cost, &find->asked, &find->asked.packs[0]));
        }
    }
}

// The samples of the list are what the programme calls tokens.
static int64_t group_ns(const void *context, int64_t count, int64_t first)
{
    const search *find = context;
    if (count > find->most[first]) {
        return -1;
    }
    const int64_t *ns = &find->price_ns[(size_t)first * find->points];
    size_t k = 0;
    while (point(k) < count) {
        k++;
    }
    int64_t whole_ns = ns[k];
    if (point(k) > count) {
        double share = (double)(count - point(k - 1)) / (double)(point(k) - point(k - 1));
        whole_ns = ns[k - 1] + (int64_t)(share * (double)(ns[k] - ns[k - 1]));
    }
    return whole_ns < find->most_ns ? whole_ns : -1;
}

// The longest sample does not fit a rank alone: with how much it would.
static sp_status refuse(const search *find, sp_error *err)
{
    const sp_scenario *scenario = find->input->scenario;
    char text[SP_WARNING_TEXT];
    sp_oom_diagnosis oom;
    sp_packing alone;
    sp_packing_init(&alone, find->input->batch, scenario->layout.dp);
    add_group(find, 0, 1, &alone.forward);
    sp_status status = sp_oom_diagnosis_find(scenario, &alone, 0, &oom, err);
    if (status == SP_OK && find->input->refused != NULL) {
        *find->input->refused = oom;
    }
    if (status == SP_OK && sp_oom_diagnosis_is_of_sample(&oom)) {
        sp_oom_diagnosis_text(&oom, text);
        status =
            sp_error_in(err, SP_ERR_INFEASIBLE, scenario->source, "memory.limit_gib", "%s", text);
    } else if (status == SP_OK) {
        status = sp_error_in(err, SP_ERR_INFEASIBLE, scenario->source, "memory.limit_gib",
                             "the activations of a sample of %lld tokens alone do not fit a rank",
                             (long long)longest_of(find, 0));
    }
    sp_packing_fini(&alone);
    return status;
}

static sp_status find_groups(search *find, sp_terapipe_slices *groups, sp_error *err)
{
    const sp_scenario *scenario = find->input->scenario;
    const sp_layout *layout = &scenario->layout;
    int64_t samples = (int64_t)find->input->batch->count;
    int64_t limit = samples < MOST_WEIGHED ? MOST_WEIGHED / samples : 1;
    int64_t largest = find_most(find, limit);
    sp_terapipe_problem problem = {.tokens = samples,
                                   .granularity = 1,
                                   .most_tokens = largest,
                                   .stages = (int64_t)layout->dp * (layout->pp - 1) + 1,
                                   .deadline_s = find->input->deadline_s,
                                   .time = group_ns,
                                   .context = find};
    if (find->most[0] > 0) {
        price(find, largest);
        problem.tolerance_ns = group_ns(find, 1, 0) / STEPS;
        sp_terapipe_slices_find(&problem, groups);
    }
    return groups->count == 0 ? refuse(find, err) : SP_OK;
}
