#!/bin/sh
# Makes passwords for compose.yaml in a folder in which `tunery kafka files` wrote its files and
# `tunery postgres sql` roles.sql. Those that are there stay, so it can be repeated.
#   sh passwords.sh environment
set -eu
umask 077
cd "$1"

value() { # FILE NAME: what a variable of a file is; nothing where it is not there
    if [ -f "$1" ]; then sed -n "s/^$2=//p" "$1"; fi
}

keep() { # FILE NAME VALUE: adds a variable that is not there
    if [ -z "$(value "$1" "$2")" ]; then printf '%s=%s\n' "$2" "$3" >>"$1"; fi
}

set_to() { # FILE NAME VALUE: adds a variable or replaces it
    { if [ -f "$1" ]; then sed "/^$2=/d" "$1"; fi; printf '%s=%s\n' "$2" "$3"; } >"$1.part"
    mv "$1.part" "$1"
}

random() { openssl rand -hex 24; }

keep operator.env TUNERY_KAFKA_USERNAME operator
keep kafka.env KAFKA_BROKER_PASSWORD "$(random)"
keep postgres.env POSTGRES_PASSWORD "$(random)"
keep s3.env ROOT_ACCESS_KEY "$(openssl rand -hex 8)"
keep s3.env ROOT_SECRET_KEY "$(random)"
keep valkey.env REDISCLI_AUTH "$(random)"
keep grafana.env GF_SECURITY_ADMIN_PASSWORD "$(random)"
keep admin-key.txt TUNERY_API_KEY "sk-tunery-$(random)"

# The gateway knows the hash of the operator's key alone.
key=$(value admin-key.txt TUNERY_API_KEY)
keep gateway.env TUNERY_ADMIN_KEY_SHA256 "$(printf %s "$key" | sha256sum | cut -d' ' -f1)"

set_to shared.env TUNERY_S3_ACCESS_KEY "$(value s3.env ROOT_ACCESS_KEY)"
set_to shared.env TUNERY_S3_SECRET_KEY "$(value s3.env ROOT_SECRET_KEY)"
set_to shared.env TUNERY_VALKEY_URL "redis://:$(value valkey.env REDISCLI_AUTH)@valkey:6379/0"

accounts= roles=
for file in $(grep -l '^TUNERY_KAFKA_USERNAME=' ./*.env); do
    keep "$file" TUNERY_KAFKA_PASSWORD "$(random)"
    account=$(value "$file" TUNERY_KAFKA_USERNAME)
    accounts="$accounts $account=$(value "$file" TUNERY_KAFKA_PASSWORD)"
    role=tunery_$account
    if grep -q "CREATE ROLE \"$role\";" roles.sql; then
        password=$(value "$file" TUNERY_POSTGRES_DSN | sed 's/^[^:]*:[^:]*:\([^@]*\)@.*/\1/')
        password=${password:-$(random)}
        keep "$file" TUNERY_POSTGRES_DSN "postgresql://$role:$password@postgres:5432/tunery"
        roles="$roles $role=$password"
    fi
done
# Grafana reads views of use and money.
if grep -q 'CREATE ROLE "tunery_reports";' roles.sql; then
    keep grafana.env GRAFANA_POSTGRES_PASSWORD "$(random)"
    roles="$roles tunery_reports=$(value grafana.env GRAFANA_POSTGRES_PASSWORD)"
fi
set_to kafka.env KAFKA_ACCOUNTS "${accounts# }"
set_to roles.env POSTGRES_ROLES "${roles# }"
set_to roles.env PGPASSWORD "$(value postgres.env POSTGRES_PASSWORD)"
chmod 644 roles.sql # nothing in it is secret, and the container that reads it has a user of its own
