"""All C files made from the schema table: codecs of the data plane's messages, the API table, the error codes."""

from __future__ import annotations

from pybroker.protocol import definitions
from pybroker.protocol.generate import c_codecs, error_codes
from pybroker.protocol.loader import apis

HOT_MESSAGES = (
    *("RequestHeader", "ResponseHeader"),
    *("ProduceRequest", "ProduceResponse", "FetchRequest", "FetchResponse"),
    *("ListOffsetsRequest", "ListOffsetsResponse"),
)

APIS_HEADER = f"""\
/* Kafka's APIs and their versions. {c_codecs.NOTE} */
#ifndef PB_WIRE_GENERATED_APIS_H
#define PB_WIRE_GENERATED_APIS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One API as Kafka defines it, not what a broker of ours serves. Constant. */
typedef struct pb_api_info {{
    int16_t api_key;
    int16_t min_version;
    int16_t max_version;
    int16_t flexible_min_version; /* -1 when no version is flexible */
    bool latest_version_unstable;
    const char *name;
}} pb_api_info;

/* In ascending order of api_key. */
extern const pb_api_info pb_apis[];
extern const size_t pb_api_count;

%s

/* The API of a key, or NULL. */
const pb_api_info *pb_api_find(int16_t api_key);

/* The version of the RequestHeader before a request, and of the ResponseHeader before its response (KIP-482). */
int16_t pb_request_header_version(const pb_api_info *api, int16_t version);
int16_t pb_response_header_version(const pb_api_info *api, int16_t version);

#endif
"""

APIS_SOURCE = f"""\
/* Kafka's APIs and their versions. {c_codecs.NOTE} */
#include "wire/generated/apis.h"

const pb_api_info pb_apis[] = {{
%s
}};
const size_t pb_api_count = sizeof(pb_apis) / sizeof(pb_apis[0]);

const pb_api_info *pb_api_find(int16_t api_key)
{{
    size_t low = 0;
    size_t high = pb_api_count;
    while (low < high) {{
        const size_t middle = low + (high - low) / 2;
        if (pb_apis[middle].api_key == api_key)
            return &pb_apis[middle];
        if (pb_apis[middle].api_key < api_key)
            low = middle + 1;
        else
            high = middle;
    }}
    return NULL;
}}

static bool is_flexible(const pb_api_info *api, int16_t version)
{{
    return api->flexible_min_version >= 0 && version >= api->flexible_min_version;
}}

int16_t pb_request_header_version(const pb_api_info *api, int16_t version)
{{
    return is_flexible(api, version) ? 2 : 1;
}}

int16_t pb_response_header_version(const pb_api_info *api, int16_t version)
{{
    /* A client that does not know the broker yet must be able to read the answer to ApiVersions (KIP-511). */
    return api->api_key != PB_API_API_VERSIONS && is_flexible(api, version) ? 1 : 0;
}}
"""


def _apis_files() -> dict[str, str]:
    keys, rows = ["enum {"], []
    for api in apis().values():
        keys.append(f"    PB_API_{definitions.snake_case(api.name).upper()} = {api.api_key},")
        flexible = -1 if api.flexible_min_version is None else api.flexible_min_version
        unstable = "true" if api.latest_version_unstable else "false"
        rows.append(
            f'    {{{api.api_key}, {api.min_version}, {api.max_version}, {flexible}, {unstable}, "{api.name}"}},'
        )
    keys.append("};")
    return {"apis.h": APIS_HEADER % "\n".join(keys), "apis.c": APIS_SOURCE % "\n".join(rows)}


def all_files() -> dict[str, str]:
    """File name -> text."""
    files = {"kafka_errors.h": error_codes.c_header(), **_apis_files()}
    for name in HOT_MESSAGES:
        message = definitions.message(name)
        stem = definitions.snake_case(name)
        files[f"{stem}.h"] = c_codecs.header_source(message)
        files[f"{stem}.c"] = c_codecs.code_source(message)
    return files
