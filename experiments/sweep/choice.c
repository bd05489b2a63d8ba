#include "experiments/sweep/choice.h"

#include <string.h>

#include "sim/base/alloc.h"

enum {
    GENERATION = 64, // points of a search between two looks at the front
    FIRST_SHARE = 4, // of a search's points one in so many is drawn at random first, at most ...
    FIRST_MOST = 1024,
    TRIES = 20000, // for the children of a generation
    MOST_CHANGES = 3,
};

// ---- what is chosen at the beginning ----

static sp_status draw(sweep_choice *choice, int64_t count, int64_t room, sp_error *err)
{
    choice->chosen = sp_calloc((size_t)room + 1, sizeof *choice->chosen);
    choice->chosen_count = count < choice->in_grid ? count : choice->in_grid;
    return sweep_spec_draw(choice->spec, choice->in_grid, choice->chosen_count, &choice->prng,
                           choice->chosen, err);
}

static sp_status begin_search(sweep_choice *choice, sp_error *err)
{
    int64_t first = (choice->points + FIRST_SHARE - 1) / FIRST_SHARE;
    sp_status status = draw(choice, first < FIRST_MOST ? first : FIRST_MOST, choice->points, err);
    choice->sorted =
        status == SP_OK ? sp_calloc((size_t)choice->points + 1, sizeof *choice->sorted) : NULL;
    if (status == SP_OK && choice->sorted == NULL) {
        return sp_error_no_memory(err, "the points of a search");
    }
    if (status == SP_OK) {
        memcpy(choice->sorted, choice->chosen,
               (size_t)choice->chosen_count * sizeof *choice->sorted);
    }
    return status;
}

sp_status sweep_choice_begin(sweep_choice *choice, const sweep_spec *spec,
                             const sweep_choice_options *options, sp_error *err)
{
    *choice = (sweep_choice){.spec = spec, .options = *options};
    int64_t wanted = options->search > 0 ? options->search : options->sample;
    sweep_cursor_begin(&choice->cursor, spec);
    sp_prng_seed(&choice->prng, (uint64_t)options->seed);
    sp_status status = sweep_spec_count(spec, &choice->in_grid, err);
    choice->points = wanted > 0 && wanted < choice->in_grid ? wanted : choice->in_grid;
    if (status == SP_OK && choice->in_grid == 0) {
        return sp_error_in(err, SP_ERR_CONTENT, spec->source, "where",
                           "holds for none of the %lld combinations",
                           (long long)spec->combinations);
    }
    if (status == SP_OK && options->search > 0) {
        status = begin_search(choice, err);
    } else if (status == SP_OK && options->sample > 0) {
        status = draw(choice, choice->points, choice->points, err);
    }
    if (options->shards > 1) {
        choice->points = (choice->points - options->shard + options->shards) / options->shards;
    }
    return status;
}

void sweep_choice_end(sweep_choice *choice)
{
    sp_free(choice->chosen);
    sp_free(choice->sorted);
    *choice = (sweep_choice){0};
}

// ---- the walk ----

static sp_status next_of_all(sweep_choice *choice, int64_t *combination, bool *found, sp_error *err)
{
    if (choice->chosen != NULL) {
        *found = choice->passed < choice->chosen_count;
        *combination = *found ? choice->chosen[choice->passed] : -1;
        return SP_OK;
    }
    sp_status status = sweep_cursor_next(&choice->cursor, found, err);
    *combination = choice->cursor.combination;
    return status;
}

sp_status sweep_choice_next(sweep_choice *choice, int64_t *combination, bool *found, sp_error *err)
{
    int64_t shards = choice->options.shards;
    bool own = false;
    sp_status status = SP_OK;
    *found = true;
    while (status == SP_OK && *found && !own) {
        status = next_of_all(choice, combination, found, err);
        own = shards <= 1 || choice->passed % shards == choice->options.shard - 1;
        choice->passed += status == SP_OK && *found;
    }
    return status;
}

// ---- the search ----

// Puts a combination among the sorted ones; false where it is there.
static bool insert(sweep_choice *choice, int64_t combination)
{
    int64_t low = 0;
    int64_t high = choice->chosen_count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (choice->sorted[middle] < combination) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low < choice->chosen_count && choice->sorted[low] == combination) {
        return false;
    }
    memmove(&choice->sorted[low + 1], &choice->sorted[low],
            (size_t)(choice->chosen_count - low) * sizeof *choice->sorted);
    choice->sorted[low] = combination;
    choice->chosen[choice->chosen_count++] = combination;
    return true;
}

static void change(sweep_choice *choice, int64_t digit[SWEEP_AXES])
{
    const sweep_spec *spec = choice->spec;
    int a = (int)sp_prng_below(&choice->prng, (uint64_t)spec->axis_count);
    int64_t count = spec->axes[a].count;
    // Neighbours are tried as often as values anywhere on the axis.
    if (sp_prng_below(&choice->prng, 2) == 0) {
        digit[a] = (int64_t)sp_prng_below(&choice->prng, (uint64_t)count);
    } else {
        int64_t to = digit[a] + (sp_prng_below(&choice->prng, 2) == 0 ? 1 : -1);
        digit[a] = to >= 0 && to < count ? to : digit[a];
    }
}

static void make_child(sweep_choice *choice, const sweep_summary *summary,
                       int64_t digit[SWEEP_AXES])
{
    uint64_t parents = (uint64_t)summary->front_count;
    int64_t other[SWEEP_AXES];
    sweep_spec_digits(choice->spec,
                      summary->front[sp_prng_below(&choice->prng, parents)].combination, digit);
    if (sp_prng_below(&choice->prng, 3) == 0) {
        sweep_spec_digits(choice->spec,
                          summary->front[sp_prng_below(&choice->prng, parents)].combination, other);
        for (int a = 0; a < choice->spec->axis_count; a++) {
            digit[a] = sp_prng_below(&choice->prng, 2) == 0 ? other[a] : digit[a];
        }
    }
    for (int changes = 1 + (int)sp_prng_below(&choice->prng, MOST_CHANGES); changes > 0;
         changes--) {
        change(choice, digit);
    }
}

sp_status sweep_choice_extend(sweep_choice *choice, const sweep_summary *summary, sp_error *err)
{
    int64_t goal = choice->chosen_count + GENERATION;
    goal = goal < choice->points ? goal : choice->points;
    sp_status status = SP_OK;
    bool breeds = choice->sorted != NULL && summary->front_count > 0;
    for (int t = 0; breeds && status == SP_OK && t < TRIES && choice->chosen_count < goal; t++) {
        int64_t digit[SWEEP_AXES];
        bool holds = true;
        make_child(choice, summary, digit);
        if (choice->spec->where != NULL) {
            status = sweep_where_holds(choice->spec->where, digit, &holds, err);
        }
        if (status == SP_OK && holds) {
            insert(choice, sweep_spec_combination(choice->spec, digit));
        }
    }
    return status;
}
