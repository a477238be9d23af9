#!/bin/bash
# Starts Kafka, in its container. Its log is formatted once, with the accounts in KAFKA_ACCOUNTS.
set -euo pipefail
umask 077

settings=/tmp/server.properties
sed "s/@PASSWORD@/$KAFKA_BROKER_PASSWORD/g" /etc/tunery/server.properties >"$settings"

if [ ! -f /var/lib/kafka/data/meta.properties ]; then
    accounts=()
    for account in "kafka=$KAFKA_BROKER_PASSWORD" $KAFKA_ACCOUNTS; do
        accounts+=(--add-scram "SCRAM-SHA-512=[name=${account%%=*},password=${account#*=}]")
    done
    cluster=$(/opt/kafka/bin/kafka-storage.sh random-uuid)
    # It prints what follows from the passwords, which belongs into no log.
    /opt/kafka/bin/kafka-storage.sh format --cluster-id "$cluster" --config "$settings" \
        "${accounts[@]}" >/dev/null
fi
exec /opt/kafka/bin/kafka-server-start.sh "$settings"
