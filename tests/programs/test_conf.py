"""The examples of conf/ for platforms: their arguments and options are valid, and their scripts run."""

import ast
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import botocore.session
import jsonschema
import pytest
import yaml
from botocore.validate import validate_parameters
from databricks.bundles.jobs import Job

from spark_cas.core.errors import ERRORS_BY_KIND
from spark_cas.log.log_lines import LOG_LEVEL
from spark_cas.options.parse import parse_load
from spark_cas.programs import bulk_load
from spark_cas.programs.errors import ExitCode, exit_code_of
from tests.executables import executable
from tests.pages import blocks

ROOT = Path(__file__).parents[2]
CONF = ROOT / "conf"
INIT = CONF / "databricks/init.sh"
ENTRY_POINT = CONF / "container/entrypoint.sh"


def bundle():
    return yaml.safe_load((CONF / "databricks/databricks.yml").read_text())["resources"]["jobs"]["load_flights"]


def resource():
    return yaml.safe_load((CONF / "kubernetes/spark-application.yaml").read_text())


def application():
    return resource()["spec"]


def emr_job():
    return json.loads((CONF / "emr-serverless/job.json").read_text())


COMMANDS = {
    "databricks": lambda: bundle()["tasks"][0]["spark_python_task"]["parameters"],
    "kubernetes": lambda: application()["arguments"],
    "emr-serverless": lambda: emr_job()["jobDriver"]["sparkSubmit"]["entryPointArguments"],
}
PROGRAMS = {
    "databricks": lambda: bundle()["tasks"][0]["spark_python_task"]["python_file"],
    "kubernetes": lambda: application()["mainApplicationFile"].removeprefix("local://"),
    "emr-serverless": lambda: emr_job()["jobDriver"]["sparkSubmit"]["entryPoint"],
}


def found(pattern, text):
    """Return the first group of a pattern in a text."""
    return re.findall(pattern, text)[0]


def checked(arguments):
    """Parse the arguments of a load and its options, as the load would, and return the request.

    Databricks replaces each ``{{...}}``.
    """
    words = [re.sub(r"{{job.parameters.day}}", "2026-11-29", each) for each in arguments]
    request = bulk_load.parse_arguments(words, "bulk_load.py").request
    assert request.job is not None, "a retry would append the rows again"
    parse_load({**request.options, "job": request.job})
    return request


@pytest.mark.parametrize("platform", COMMANDS)
def test_arguments_and_options_are_valid(platform):
    request = checked(COMMANDS[platform]())
    assert (ROOT / "jobs" / Path(PROGRAMS[platform]()).name).is_file()
    jaas = dict(request.log_options).get("kafka.sasl.jaas.config", 'password="env:')
    assert 'password="env:' in jaas, "a password is a reference"


@pytest.mark.parametrize("wrong", [["--keys", "k"], ["--log-option", "kafka.unknown.setting=1"]])
def test_a_wrong_argument_or_option_is_found(wrong):
    with pytest.raises((SystemExit, ValueError)):
        checked([*COMMANDS["kubernetes"](), *wrong])


def test_the_names_within_the_bundle_agree():
    job = bundle()
    [cluster] = job["job_clusters"]
    new = cluster["new_cluster"]
    assert job["tasks"][0]["job_cluster_key"] == cluster["job_cluster_key"]
    [script] = new["init_scripts"]
    folder = found(r"SPARK_CAS_FOLDER:-(\S+)}", INIT.read_text())
    assert script["volumes"]["destination"] == f"{folder}/{INIT.name}"
    secrets = re.findall(r"env:(\w+)", " ".join(COMMANDS["databricks"]()))
    assert {*new["spark_env_vars"]} == {LOG_LEVEL, *secrets}
    runtime = new["spark_version"].split(".")[0]
    assert f"databricks-{runtime}.txt" in INIT.read_text()
    assert (CONF / f"platforms/databricks-{runtime}.txt").is_file()


def test_the_bundle_has_a_job_of_databricks():
    """With the types of the Databricks CLI. They reject a field that a job does not have."""
    Job.from_dict(bundle())
    wrong = bundle()
    wrong["job_clusters"][0]["new_cluster"]["init_script"] = []
    with pytest.raises(ValueError, match="init_script"):
        Job.from_dict(wrong)


SPARK_OPERATOR = "github.com/kubeflow/spark-operator/v2@v2.4.0"
SUM_OF_OPERATOR = "h1:Bo5rz5dlhqYEa7e/TLtUEVXDMNRotnVaQ4VLCyeLeOc="


def strict(schema):
    """Return a schema that rejects unknown fields, as `kubectl apply` does."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {"additionalProperties": False} if isinstance(schema.get("properties"), dict) else {}
    return closed | {name: strict(each) for name, each in schema.items()}


@pytest.mark.full
def test_the_application_is_a_resource_of_the_operator(tmp_path):
    """With the definition in the Go module of the operator. Go downloads it once into its cache (0.8 MB)."""
    download = [executable("go"), "mod", "download", "-json", SPARK_OPERATOR]
    module = json.loads(subprocess.run(download, cwd=tmp_path, check=True, capture_output=True).stdout)
    assert module["Sum"] == SUM_OF_OPERATOR
    folder = Path(module["Dir"]) / "charts/spark-operator-chart/crds"
    definition = yaml.safe_load((folder / "sparkoperator.k8s.io_sparkapplications.yaml").read_text())["spec"]
    [version] = [each for each in definition["versions"] if each["served"]]
    assert resource()["apiVersion"] == f"{definition['group']}/{version['name']}"
    assert resource()["kind"] == definition["names"]["kind"]
    schema = strict(version["schema"]["openAPIV3Schema"])
    schema["properties"]["metadata"] = {"type": "object", "required": ["name"]}
    validator = jsonschema.Draft202012Validator(schema)
    assert [each.message for each in validator.iter_errors(resource())] == []
    wrong = resource()
    wrong["spec"]["driver"]["serviceAcount"] = "spark"
    assert ["'serviceAcount'" in each.message for each in validator.iter_errors(wrong)] == [True]


def test_the_names_within_the_application_agree():
    spec = application()
    [volume] = spec["volumes"]
    variables = {*re.findall(r"env:(\w+)", " ".join(spec["arguments"]))}
    for pod in (spec["driver"], spec["executor"]):
        assert [each["name"] for each in pod["volumeMounts"]] == [volume["name"]]
        assert {each["name"] for each in pod["env"]} == variables
    assert spec["arguments"][1].startswith(spec["driver"]["volumeMounts"][0]["mountPath"])
    docker = (CONF / "container/Dockerfile").read_text()
    assert f"WORKDIR {Path(PROGRAMS['kubernetes']()).parents[1]}" in docker
    assert spec["sparkVersion"].startswith(found(r"pyspark==([\d.]+)\*", docker))


def test_the_job_of_emr_is_a_request_of_its_api():
    api = botocore.session.get_session().get_service_model("emr-serverless")
    shape = api.operation_model("StartJobRun").input_shape
    validate_parameters(emr_job() | {"clientToken": "added by the client"}, shape)
    submit = shlex.split(emr_job()["jobDriver"]["sparkSubmit"]["sparkSubmitParameters"])
    assert {*submit[::2]} == {"--archives", "--conf"}
    [archive] = [value for name, value in zip(submit[::2], submit[1::2], strict=True) if name == "--archives"]
    assert archive.rpartition("#")[2] == "environment"
    assert all("=./environment/bin/python" in each for each in submit if "PYTHON" in each)


@pytest.mark.parametrize("platform", COMMANDS)
def test_settings_of_spark_are_those_of_the_defaults(platform):
    lines = (CONF / "spark-defaults.conf").read_text().splitlines()
    defaults = dict(line.split(maxsplit=1) for line in lines if line.startswith("spark."))
    settings = {
        "databricks": lambda: bundle()["job_clusters"][0]["new_cluster"]["spark_conf"],
        "kubernetes": lambda: application()["sparkConf"],
        "emr-serverless": lambda: emr_job()["configurationOverrides"]["applicationConfiguration"][0]["properties"],
    }[platform]()
    assert {*settings} >= {"spark.sql.execution.arrow.maxRecordsPerBatch", "spark.redaction.string.regex"}
    assert settings.items() <= defaults.items()


JAAS = "kafka.sasl.jaas.config"


@pytest.mark.spark
@pytest.mark.parametrize(
    "pair",
    [
        f"'{JAAS}'='canary'",
        f"{JAAS} 'canary'",
        f"`{JAAS}` = \"canary 'x' canary\"",
        f"'{JAAS}'='x password=\"canary\";'",
        f'\'{JAAS}\'="x password=\\"canary\\";"',
        rf"'{JAAS}'='it\'s canary'",
        f"'{JAAS}'='it''s canary'",
        f"'{JAAS}'=r'canary\\d'",
        f"'{JAAS}'='{'Z' * 9000} canary'",
        f"'{JAAS}' =\n  'canary'",
        f"'{JAAS}' /* 'a' */ = -- 'b'\n 'canary'",
        "'store.azure_storage_account_key'='canary'",
    ],
)
def test_the_redaction_hides_secrets_in_each_spelling_of_sql(spark, pair):
    """The expression is matched by Java. The parser of Spark accepts each spelling."""
    [pattern] = re.findall(r"(?m)^spark\.redaction\.string\.regex (.*)$", (CONF / "spark-defaults.conf").read_text())
    assert "\\" not in pattern, "Spark removes backslashes from the file"
    view = f"CREATE TEMPORARY VIEW log USING `conditional-log` OPTIONS ({pair}, 'topic'='kept')"
    spark._jsparkSession.sessionState().sqlParser().parsePlan(view)
    hidden = spark._jvm.java.util.regex.Pattern.compile(pattern).matcher(view).replaceAll("hidden")
    assert "canary" not in hidden
    assert hidden.endswith("hidden, 'topic'='kept')")


EXAMPLES = re.sub(r"(?m)^# (?=\[|\w+(\.\w+)* = |  \w+=)", "", (CONF / "conditional-log.toml").read_text())
"""The defaults per log, with the commented tables."""
OF_LOGS = [(log, option) for log, table in tomllib.loads(EXAMPLES)["logs"].items() for option in table]


@pytest.mark.parametrize(("log", "option"), OF_LOGS)
def test_each_default_of_a_log_is_an_option(tmp_path, log, option):
    value = tomllib.loads(EXAMPLES)["logs"][log][option]
    lines = [f"{name} = {json.dumps(each)}" for name, each in flat({option: value})]
    if any("sasl" in line for line in lines):
        lines.append('kafka.security.protocol = "SASL_SSL"')
    (tmp_path / "conf.toml").write_text("\n".join([f"[logs.{json.dumps(log)}]", *dict.fromkeys(lines)]))
    address = log if "/" in log else f"kafka://localhost:9092/{log}"
    parse_load({"path": address, "conf": str(tmp_path / "conf.toml")})


def flat(table, prefix=""):
    for name, value in table.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


@pytest.mark.spark
def test_spark_has_each_setting_of_the_defaults(spark):
    text = (CONF / "spark-defaults.conf").read_text()
    known = {row.key for row in spark.sql("SET -v").collect()}
    assert {*re.findall(r"^(spark\.sql\S+)", text, re.MULTILINE)} <= known


@pytest.mark.parametrize("script", [INIT, ENTRY_POINT])
def test_scripts_are_valid_bash(script):
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", script], check=True)


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def test_the_init_script_installs_the_wheel_with_the_packages_of_the_runtime(tmp_path):
    """With a pip that prints its arguments."""
    program(tmp_path / "databricks/python/bin/pip", '#!/bin/bash\nprintf "%s\\n" "$@"\n')
    folder = tmp_path / "my libraries"
    folder.mkdir()
    for name in ("spark_cas-0.1.0-py3-none-any.whl", "databricks-18.txt"):
        (folder / name).touch()
    script = INIT.read_text().replace("/databricks/python", f"{tmp_path}/databricks/python")
    environment = os.environ | {"SPARK_CAS_FOLDER": str(folder)}
    ran = subprocess.run(["bash", "-c", script], env=environment, check=True, capture_output=True, text=True)
    *options, constraints, wheel = ran.stdout.splitlines()
    assert (options, constraints) == (["install", "--quiet", "--constraint"], str(folder / "databricks-18.txt"))
    assert wheel == str(folder / "spark_cas-0.1.0-py3-none-any.whl")
    (tmp_path / "databricks/python/bin/pip").write_text("#!/bin/bash\nexit 3\n")
    assert subprocess.run(["bash", "-c", script], env=environment, check=False).returncode == 3


def executor(**variables):
    """The variables that Spark sets for a container of an executor."""
    names = (
        "DRIVER_URL",
        "EXECUTOR_ID",
        "EXECUTOR_CORES",
        "EXECUTOR_POD_IP",
        "EXECUTOR_POD_NAME",
        "RESOURCE_PROFILE_ID",
    )
    values = {f"SPARK_{name}": "1" for name in names}
    return {
        **os.environ,
        **values,
        "SPARK_EXECUTOR_MEMORY": "512m",
        "SPARK_APPLICATION_ID": "app-1",
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        **variables,
    }


def test_the_entry_point_passes_each_option_of_the_jvm(tmp_path):
    """With a Java that prints its arguments."""
    program(tmp_path / "java", '#!/bin/bash\nprintf "%s\\0" "$@"\n')
    environment = executor(SPARK_JAVA_OPT_0="-Da=b c", SPARK_JAVA_OPT_1="-Dd=line\nbreak")
    environment["PATH"] = f"{tmp_path}:{environment['PATH']}"
    ran = subprocess.run([ENTRY_POINT, "executor"], env=environment, check=True, capture_output=True, text=True)
    arguments = ran.stdout.split("\0")
    assert {"-Da=b c", "-Dd=line\nbreak", "-Xmx512m"} <= {*arguments}
    assert arguments[arguments.index("--app-id") + 1] == "app-1"


@pytest.mark.spark
def test_the_executor_of_the_entry_point_connects_to_its_driver():
    """Without a driver at this address. A wrong argument would print the usage."""
    environment = executor(
        SPARK_DRIVER_URL="spark://CoarseGrainedScheduler@127.0.0.1:1", SPARK_EXECUTOR_POD_IP="127.0.0.1"
    )
    ran = subprocess.run(
        [ENTRY_POINT, "executor"], env=environment, check=False, capture_output=True, text=True, timeout=110
    )
    assert ran.returncode != 0
    assert "Failed to connect to /127.0.0.1:1" in ran.stdout + ran.stderr
    assert "Usage" not in ran.stdout + ran.stderr


def test_the_entry_point_runs_other_commands():
    ran = subprocess.run([ENTRY_POINT, "echo", "a b"], check=True, capture_output=True, text=True)
    assert ran.stdout == "a b\n"


def test_the_examples_of_orchestrators_run_a_valid_command():
    common, *orchestrators = [each.text for each in blocks("docs/orchestration.md") if each.language == "python"]
    names: dict[str, Any] = {}
    exec(compile(common, "orchestration.md", "exec"), names)  # noqa: S102 - our own text
    program, name, *arguments = names["command"]("2026-11-29")
    assert (program, name) == ("spark-cas", "load")
    assert "2026-11-29" in checked(arguments).job
    final = {exit_code_of(error("x")) for error in ERRORS_BY_KIND.values() if not error.retriable}
    assert names["NO_RETRY"] == final | {ExitCode.DIFFERENT}
    assert len(orchestrators) == 2
    for each in orchestrators:
        nodes = [node for node in ast.walk(ast.parse(each)) if isinstance(node, ast.ImportFrom)]
        [imported] = [node for node in nodes if node.module == "flights_load"]
        assert {alias.name for alias in imported.names} <= {*names}
