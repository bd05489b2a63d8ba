// Models by name: a Hugging Face config.json, the folder that holds one, or a built-in model.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "sim/base/data_folder.h"
#include "sim/base/files.h"
#include "sim/model/hf_config.h"
#include "sim/model/model.h"

static bool config_in(const char *folder, char path[SP_DATA_PATH])
{
    int bytes = snprintf(path, SP_DATA_PATH, "%s%sconfig.json", folder,
                         folder[0] != '\0' && folder[strlen(folder) - 1] == '/' ? "" : "/");
    return bytes < SP_DATA_PATH && sp_is_file(path);
}

bool sp_model_is_there(const char *path)
{
    char config[SP_DATA_PATH];
    return sp_is_file(path) || config_in(path, config);
}

sp_status sp_model_named(const char *name, sp_model *model, bool *known, sp_error *err)
{
    char config[SP_DATA_PATH];
    const char *built_in = sp_model_builtin_meant(name);
    *known = true;
    if (sp_is_file(name)) {
        return sp_model_read_hf(name, model, err);
    }
    bool is_folder = access(name, F_OK) == 0;
    if (is_folder && config_in(name, config)) {
        return sp_model_read_hf(config, model, err);
    }
    // A plain name is that of a built-in model although a folder of results may be called so.
    if (is_folder && (built_in == NULL || strchr(name, '/') != NULL)) {
        return sp_error_set(err, SP_ERR_CONTENT,
                            "%s: the folder holds no config.json, which Hugging Face's library "
                            "writes beside the weights",
                            name);
    }
    if (built_in != NULL) {
        return sp_model_builtin(built_in, model, err);
    }
    *known = false;
    return SP_OK;
}

// Names the model as the file, or its folder where it has the name that all have; the whole path
// where a built-in model is called so, from which it is told apart.
static void name_of_path(const char *path, char name[SP_DATA_PATH])
{
    static const char usual[] = "config.json";
    const char *slash = strrchr(path, '/');
    size_t file = slash != NULL ? (size_t)(slash - path) + 1 : 0;
    bool is_usual = strcmp(path + file, usual) == 0;
    const char *last = NULL;
    snprintf(name, SP_DATA_PATH, "%s", path);
    if (is_usual && file < SP_DATA_PATH) {
        name[file > 1 ? file - 1 : file] = '\0';
    }
    if (is_usual && (name[0] == '\0' || strcmp(name, ".") == 0)) {
        name[0] = '\0';
        last = getcwd(name, SP_DATA_PATH) != NULL ? strrchr(name, '/') : NULL;
    } else if (!is_usual) {
        char *dot = strrchr(name, '.');
        if (dot != NULL && dot > name + file && strcmp(dot, ".json") == 0) {
            *dot = '\0';
        }
    }
    last = last != NULL ? last : strrchr(name, '/');
    last = last != NULL ? last + 1 : name;
    if (last[0] == '\0') {
        snprintf(name, SP_DATA_PATH, "%s", usual);
    } else if (sp_model_builtin_meant(last) == NULL) {
        memmove(name, last, strlen(last) + 1);
    }
}

sp_status sp_model_read_hf(const char *path, sp_model *model, sp_error *err)
{
    json_t *root = NULL;
    char called[SP_DATA_PATH];
    sp_status status = sp_json_read_python_file(path, 0, &root, err);
    if (status == SP_OK) {
        name_of_path(path, called);
        status = sp_i_hf_read(root, path, called, model, err);
        json_decref(root);
    }
    return status;
}
