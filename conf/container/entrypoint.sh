#!/bin/bash
# Run the commands that Spark gives its containers on Kubernetes, `driver` and `executor`, or any other command.
set -euo pipefail

case "${1:-}" in
driver)
    exec spark-submit --deploy-mode client --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" "${@:2}"
    ;;
executor)
    jars=$(python3 -c 'import os, pyspark; print(os.path.join(pyspark.__path__[0], "jars", "*"))')
    # Spark passes each option of the JVM in a variable.
    mapfile -d '' -t options < <(env --null | sed --null-data --quiet 's/^SPARK_JAVA_OPT_[0-9]*=//p')
    exec java "${options[@]}" -Xms"$SPARK_EXECUTOR_MEMORY" -Xmx"$SPARK_EXECUTOR_MEMORY" \
        -cp "${SPARK_CONF_DIR:-}:$jars" org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
        --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
        --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
        --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
*)
    exec "$@"
    ;;
esac
