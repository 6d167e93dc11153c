locals {
  environment = {
    for service, it in local.services : service => merge(
      {
        FUNCTION_TARGET      = it.target
        FUNCTION_SOURCE      = "services/lamina_services/${it.package}/main.py"
        GOOGLE_CLOUD_PROJECT = var.project
        LAMINA_TOPIC_PREFIX  = var.topic_prefix
      },
      contains(local.uses.valkey, service) ? {
        LAMINA_VALKEY_URL = local.valkey_url
        LAMINA_VALKEY_IAM = "true"
      } : {},
      contains(local.uses.database, service) ? {
        LAMINA_DATABASE_URL = "postgresql://${urlencode(local.database_users[service])}@${local.database_address}"
        LAMINA_DATABASE_IAM = "true"
      } : {},
      contains(local.uses.model, service) ? {
        LAMINA_MODEL              = "gemini"
        GOOGLE_GENAI_USE_VERTEXAI = "true"
        GOOGLE_CLOUD_LOCATION     = var.vertex_location
      } : {},
      var.settings,
    )
  }
}

resource "google_cloud_run_v2_service" "service" {
  for_each            = local.services
  name                = "${var.name}-${each.key}"
  location            = var.region
  ingress             = contains(keys(local.public), each.key) ? var.agents_ingress : "INGRESS_TRAFFIC_INTERNAL_ONLY"
  deletion_protection = false

  template {
    service_account = google_service_account.service[each.key].email
    timeout         = "${local.timeout_s[each.key]}s"

    scaling {
      min_instance_count = contains(keys(local.public), each.key) ? var.min_instances.public : var.min_instances.worker
      max_instance_count = var.max_instances
    }

    # Addresses of the database and the buffer only: Pub/Sub and Gemini are reached as from any service.
    vpc_access {
      egress = "PRIVATE_RANGES_ONLY"
      network_interfaces {
        network    = google_compute_network.this.id
        subnetwork = google_compute_subnetwork.this.id
      }
    }

    containers {
      image = var.image

      resources {
        limits = {
          cpu    = "1"
          memory = "512Mi"
        }
        startup_cpu_boost = true
      }

      ports {
        container_port = 8080
      }

      # Whether it listens, and not /healthz: the context answers without its database, and a restart mends none.
      startup_probe {
        tcp_socket {
          port = 8080
        }
        period_seconds    = 1
        failure_threshold = 60
      }

      dynamic "env" {
        for_each = local.environment[each.key]
        content {
          name  = env.key
          value = env.value
        }
      }
    }
  }

  depends_on = [
    google_alloydb_user.service,
    google_project_iam_member.database,
    google_project_iam_member.model,
    google_project_iam_member.valkey,
  ]
}
