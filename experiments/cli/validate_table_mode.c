// slimpack validate --published, --measurements
#include <string.h>

#include "experiments/cli/plot.h"
#include "experiments/cli/report.h"
#include "experiments/cli/validate_modes.h"
#include "experiments/cli/validate_report.h"
#include "experiments/measurements/published.h"
#include "sim/base/alloc.h"

enum { MOST_OVERRIDES = 64, OVERRIDE = 1100 };

typedef struct tables {
    sp_measurements measurements[SP_PUBLISHED_TABLES];
    sp_validation validations[SP_PUBLISHED_TABLES];
    int count;
} tables;

// A profile is a setting like any other, but bubble tables have none to replace.
static sp_status choose_overrides(const cli_validate_tables *args, char profile[OVERRIDE],
                                  const char **overrides, int *count, sp_error *err)
{
    *count = 0;
    if (args->set->count >= MOST_OVERRIDES) {
        return sp_error_set(err, SP_ERR_USAGE, "--set is given %d times or more", MOST_OVERRIDES);
    }
    if (args->profile != NULL) {
        int length = snprintf(profile, OVERRIDE, "profile=\"%s\"", args->profile);
        if (length >= OVERRIDE || strpbrk(args->profile, "\"\\") != NULL) {
            return sp_error_set(err, SP_ERR_USAGE, "--profile: cannot use '%.64s'", args->profile);
        }
        overrides[(*count)++] = profile;
    }
    for (int i = 0; i < args->set->count; i++) {
        overrides[(*count)++] = args->set->items[i];
    }
    return SP_OK;
}

// Tables of published bubble ratios state every cost: there is nothing to replace in them.
static bool states_costs(const cli_validate_tables *args, const sp_measurements *measurements)
{
    return args->measurements == NULL && measurements->cases[0].scenario.uniform;
}

static sp_status read_table(const cli_validate_tables *args, const char *path,
                            sp_measurements *measurements, sp_error *err)
{
    char profile[OVERRIDE];
    const char *overrides[MOST_OVERRIDES];
    int count = 0;
    sp_status status = choose_overrides(args, profile, overrides, &count, err);
    if (status == SP_OK && args->measurements == NULL && count > 0) {
        status = sp_measurements_read(path, args->map, NULL, 0, measurements, err);
        if (status != SP_OK || states_costs(args, measurements)) {
            return status;
        }
        sp_measurements_fini(measurements);
    }
    return status == SP_OK
               ? sp_measurements_read(path, args->map, overrides, count, measurements, err)
               : status;
}

static sp_status validate_table(const cli_validate_tables *args, const char *path, tables *all,
                                sp_error *err)
{
    sp_status status = read_table(args, path, &all->measurements[all->count], err);
    if (status == SP_OK) {
        status = sp_validation_run(&all->measurements[all->count], args->threads,
                                   &all->validations[all->count], err);
        all->count++;
    }
    return status;
}

static sp_status validate_published(const cli_validate_tables *args, tables *all, sp_error *err)
{
    sp_published published;
    char path[SP_PUBLISHED_PATH];
    sp_status status = sp_published_list(&published, err);
    if (status == SP_OK && args->table != NULL) {
        status = sp_published_file(&published, args->table, path, err);
        return status == SP_OK ? validate_table(args, path, all, err) : status;
    }
    for (int i = 0; status == SP_OK && i < published.count; i++) {
        status = sp_published_file(&published, published.names[i], path, err);
        if (status == SP_OK) {
            status = validate_table(args, path, all, err);
        }
    }
    return status;
}

// ---- output ----

static int print(const cli_validate_tables *args, const tables *all)
{
    if (args->json) {
        return cli_print_json(cli_validations_json(all->validations, all->count));
    }
    cli_print_validations(stdout, all->validations, all->count);
    for (int i = 0; args->rows && i < all->count; i++) {
        cli_print_validated_cases(stdout, &all->validations[i]);
    }
    return 0;
}

static bool within_bounds(const tables *all)
{
    bool within = true;
    for (int i = 0; i < all->count; i++) {
        within = within && all->validations[i].within_bound;
    }
    return within;
}

static int validate(const cli_validate_tables *args, tables *all)
{
    sp_error err = {0};
    sp_status status = args->plot != NULL ? cli_plot_check(args->plot, &err) : SP_OK;
    if (status == SP_OK) {
        status = args->measurements == NULL ? validate_published(args, all, &err)
                                            : validate_table(args, args->measurements, all, &err);
    }
    if (status != SP_OK) {
        return cli_fail(&err);
    }
    int exit_status = print(args, all);
    if (args->plot != NULL &&
        cli_plot_validations(args->plot, all->validations, all->count, &err) != SP_OK) {
        return cli_fail(&err);
    }
    return exit_status == 0 && !within_bounds(all) ? sp_status_exit(SP_ERR_INFEASIBLE)
                                                   : exit_status;
}

int cli_validate_with_tables(const cli_validate_tables *args)
{
    sp_error err = {0};
    tables *all = sp_i_calloc(1, sizeof *all);
    if (all == NULL) {
        sp_error_no_memory(&err, "a validation");
        return cli_fail(&err);
    }
    int exit_status = validate(args, all);
    for (int i = 0; i < all->count; i++) {
        sp_validation_fini(&all->validations[i]);
        sp_measurements_fini(&all->measurements[i]);
    }
    sp_i_free(all);
    return exit_status;
}
