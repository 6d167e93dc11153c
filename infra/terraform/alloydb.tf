resource "google_alloydb_cluster" "memory" {
  cluster_id       = var.name
  location         = var.region
  database_version = "POSTGRES_17"

  network_config {
    network            = google_compute_network.this.id
    allocated_ip_range = google_compute_global_address.alloydb.name
  }

  initial_user {
    user     = "postgres"
    password = random_password.database_owner.result
  }

  continuous_backup_config {
    enabled              = true
    recovery_window_days = 14
  }

  lifecycle {
    # Later versions are an operator's decision: an upgrade stops the database.
    ignore_changes = [database_version]
  }

  depends_on = [google_service_networking_connection.alloydb]
}

resource "google_alloydb_instance" "primary" {
  cluster           = google_alloydb_cluster.memory.name
  instance_id       = "primary"
  instance_type     = "PRIMARY"
  availability_type = var.alloydb_high_availability ? "REGIONAL" : "ZONAL"

  machine_config {
    cpu_count = var.alloydb_cpus
  }

  client_connection_config {
    require_connectors = false
    ssl_config {
      ssl_mode = "ENCRYPTED_ONLY"
    }
  }

  database_flags = {
    "alloydb.iam_authentication" = "on"
  }
}

# Each service logs in as itself; `lamina migrate` makes it a member of its role.
resource "google_alloydb_user" "service" {
  for_each       = local.uses.database
  cluster        = google_alloydb_cluster.memory.name
  user_id        = local.database_users[each.value]
  user_type      = "ALLOYDB_IAM_USER"
  database_roles = ["alloydbiamuser"]
  lifecycle {
    # The migration grants the role, which must not look like a mistake to mend.
    ignore_changes = [database_roles]
  }
  depends_on = [google_alloydb_instance.primary]
}

locals {
  database_users = {
    for service in local.uses.database :
    service => trimsuffix(google_service_account.service[service].email, ".gserviceaccount.com")
  }
  database_address = "${google_alloydb_instance.primary.ip_address}:5432/postgres?sslmode=require"
}

# The owner of the tables has a password, as extensions and roles need more than an IAM user has. It is in
# Terraform's state, so keep that in a private bucket.
resource "random_password" "database_owner" {
  length  = 32
  special = false
}

resource "google_secret_manager_secret" "database_owner" {
  secret_id = "${var.name}-database-owner"
  replication {
    auto {}
  }
  depends_on = [google_project_service.api]
}

resource "google_secret_manager_secret_version" "database_owner" {
  secret      = google_secret_manager_secret.database_owner.id
  secret_data = random_password.database_owner.result
}

# Run it after each deployment: gcloud run jobs execute <name>-migrate --wait
resource "google_cloud_run_v2_job" "migrate" {
  name                = "${var.name}-migrate"
  location            = var.region
  deletion_protection = false

  template {
    template {
      service_account = google_service_account.migrate.email
      max_retries     = 0
      timeout         = "1800s"

      vpc_access {
        egress = "PRIVATE_RANGES_ONLY"
        network_interfaces {
          network    = google_compute_network.this.id
          subnetwork = google_compute_subnetwork.this.id
        }
      }

      containers {
        image   = var.image
        command = ["lamina", "migrate"]
        env {
          name  = "LAMINA_DATABASE_URL"
          value = "postgresql://postgres@${local.database_address}"
        }
        env {
          name  = "LAMINA_GRANT"
          value = join(" ", [for service, role in local.database_roles : "${role}=${local.database_users[service]}"])
        }
        # libpq takes the password from here when the URL has none.
        env {
          name = "PGPASSWORD"
          value_source {
            secret_key_ref {
              secret  = google_secret_manager_secret.database_owner.secret_id
              version = google_secret_manager_secret_version.database_owner.version
            }
          }
        }
      }
    }
  }

  depends_on = [google_alloydb_user.service, google_secret_manager_secret_iam_member.migrate]
}
